#!/usr/bin/env python3
"""Snapshots by hand: loaded, changed, and saved from the version that was loaded; removed now and then. See client.py."""
from psycopg.types.json import Jsonb

from client import Client
from chain import chained      # client.py has led the way to it


class Snapshots(Client):
    expected = frozenset(('RV003',))        # somebody else has saved it

    def step(self):
        id_ = f'page {self.random.randint(0, 2)}'
        if self.random.random() < 0.2:
            self.save_locked(id_)
            return
        with self.operation('load', id=id_) as op:
            version, state = self.row('SELECT version, state FROM revenant.load(%s, %s)', 'chaos.page', id_)
            op.says(version=version or 0, digest=(state or {}).get('digest', ''))
        if op.ok:
            self.save(id_, op.result['version'], op.result['digest'])

    def save(self, id_, version, digest):
        removes = self.random.random() < 0.05 and version > 0
        with self.operation('remove' if removes else 'save', id=id_, base=version) as op:
            if removes:
                op.says(version=self.value('SELECT revenant.remove(%s, %s, %s)', 'chaos.page', id_, version))
            else:
                self.write(op, id_, version, digest)

    def save_locked(self, id_):
        """The row is locked from the load on, so nobody else can have saved it; but for the first ones, which find no row."""
        with self.transaction('save', id=id_) as op:
            version, state = self.row('SELECT version, state FROM revenant.load(%s, %s, true)', 'chaos.page', id_)
            op.says(base=version or 0, locked=version is not None)
            self.write(op, id_, version or 0, (state or {}).get('digest', ''))

    def write(self, op, id_, version, digest):
        tag = f'{self.name}#{op.number}'
        op.says(tag=tag)
        op.says(version=self.value('SELECT revenant.save(%s, %s, %s, %s)', 'chaos.page', id_, version, Jsonb({'tag': tag, 'digest': chained(digest, tag)})))


if __name__ == '__main__':
    Snapshots().run()
