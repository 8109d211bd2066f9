#!/usr/bin/env python3
"""Entities that are deleted again and again, and called again. See client.py."""
from psycopg.types.json import Jsonb

from client import Client


class Mortals(Client):
    def step(self):
        id_ = f'mortal {self.random.randint(0, 2)}'
        if self.random.random() < 0.15:
            self.delete(id_)
        else:
            self.call(id_)

    def call(self, id_):
        with self.transaction('live', id=id_) as op:
            tag = f'{self.name}#{op.number}'
            reply = self.value('SELECT revenant.call(%s, %s, %s)', 'mortal', id_, Jsonb({'tag': tag}))
            op.says(tag=tag, n=reply['n'], digest=reply['digest'], version=self.value('SELECT version FROM revenant.receipt()'))

    def delete(self, id_):
        """False: there is none, or none any more."""
        with self.transaction('delete', id=id_) as op:
            deleted = self.value('SELECT revenant.delete_entity(%s, %s)', 'mortal', id_)
            op.says(deleted=deleted)
            if deleted:
                op.says(version=self.value('SELECT version FROM chaos.mortal WHERE id = %s', id_))


if __name__ == '__main__':
    Mortals().run()
