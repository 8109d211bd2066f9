"""A wire between two addresses that can be cut, as a network is: what is sent stays unanswered, and nobody is told."""
import socket
import threading


def hang_up(end):
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    end.close()


class Wire:
    def __init__(self, here, there):
        self.there = there
        self.whole = threading.Event()
        self.whole.set()
        self.ends = []
        self.lock = threading.Lock()
        self.server = socket.create_server(here)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.server.accept()
            except OSError:
                return
            threading.Thread(target=self.join, args=(near,), daemon=True).start()

    def join(self, near):
        with self.lock:
            self.ends.append(near)
        self.whole.wait()
        try:
            far = socket.create_connection(self.there)
        except OSError:
            hang_up(near)
            return
        with self.lock:
            self.ends = [end for end in self.ends if end.fileno() >= 0] + [far]
        for source, target in ((near, far), (far, near)):
            threading.Thread(target=self.carry, args=(source, target), daemon=True).start()

    def carry(self, source, target):
        try:
            while data := source.recv(65536):
                self.whole.wait()
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            hang_up(end)

    def cut(self):
        self.whole.clear()

    def mend(self):
        """What was under way is lost; new connections come through."""
        self.drop()
        self.whole.set()

    def drop(self):
        """Hangs up whatever is under way."""
        with self.lock:
            ends, self.ends = self.ends, []
        for end in ends:
            hang_up(end)

    def close(self):
        self.server.close()
        self.mend()
