"""A scratch folder, and the processes that work in it: nothing of either is left behind."""
import ctypes
import glob
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time

MARK = 'REVENANT_CHAOS'
CLONE_NEWNS = 0x00020000        # of sched.h


def wait_until(condition, seconds, pause=0.05):
    """What the condition says when it says something true; else its last answer, after so many seconds."""
    end = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer or time.monotonic() > end:
            return answer
        time.sleep(pause)


def processes():
    return [int(name) for name in os.listdir('/proc') if name.isdigit()]


def parent_of(pid):
    try:
        with open(f'/proc/{pid}/stat', encoding='ascii', errors='replace') as file:
            return int(file.read().rpartition(')')[2].split()[1])
    except (OSError, IndexError, ValueError):
        return None


def kill(pid, number):
    """False: it is gone already."""
    try:
        os.kill(pid, number)
        return True
    except ProcessLookupError:
        return False


class Scratch:
    """
    The folder, the user who owns it (a server refuses root), and the environment of all that runs there. Every process has a mark in its
    environment by which it is found in the end.
    """

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix='rvchaos.', dir=os.environ.get('TMPDIR', '/tmp'))
        self.user = self.group = None
        if os.geteuid() == 0:
            try:
                entry = pwd.getpwnam('postgres')
            except KeyError:
                entry = pwd.getpwnam('nobody')
            self.user, self.group = entry.pw_uid, entry.pw_gid
        self.mounts = []
        self.own(self.folder)
        os.chmod(self.folder, 0o755)
        self.environment = {
            'PATH': '/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin', 'LC_ALL': 'C.UTF-8', 'HOME': self.folder, 'TMPDIR': self.make('tmp'), MARK: self.folder,
            'REVENANT_SCRATCH': os.environ.get('REVENANT_SCRATCH', self.folder),
            # of a server that is built with sanitizers
            **{name: os.environ[name] for name in ('ASAN_OPTIONS', 'UBSAN_OPTIONS') if name in os.environ}}

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def own(self, path):
        if self.user is not None:
            os.chown(path, self.user, self.group)

    def make(self, name):
        """A folder in it."""
        path = self.path(name)
        os.makedirs(path, exist_ok=True)
        self.own(path)
        return path

    def spawn(self, command, output, environment=(), as_root=False, **more):
        """A process that goes on by itself; its output is appended to a file."""
        if self.user is not None and not as_root:
            more.update(user=self.user, group=self.group, extra_groups=[])
        with open(output, 'ab') as file:
            return subprocess.Popen(command, stdin=more.pop('stdin', subprocess.DEVNULL), stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
                                    cwd=self.folder, env={**self.environment, **dict(environment)}, **more)

    def run(self, command, output, limit=300, **more):
        """A process that ends; RuntimeError if it fails."""
        process = self.spawn(command, output, **more)
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            status = f'longer than {limit} s'
        if status != 0:
            with open(output, encoding='utf-8', errors='replace') as file:
                raise RuntimeError(f'{" ".join(map(str, command))}: {status}\n{"".join(file.readlines()[-20:])}')

    # ---- a small file system of its own

    def mount(self, name, size):
        """
        A folder that is a file system of so many bytes; RuntimeError where this machine cannot. As root only. Only this process and its
        children see it: the kernel unmounts it when they have ended, however they did.
        """
        if not self.mounts:
            if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS) != 0:
                raise RuntimeError(f'unshare: {os.strerror(ctypes.get_errno())}')
            self.run(['mount', '--make-rprivate', '/'], self.path('log', 'mount'), as_root=True)
        image, place, log = self.path(f'{name}.image'), self.make(name), self.path('log', 'mount')
        with open(image, 'wb') as file:
            file.truncate(size)
        self.run(['mkfs.ext4', '-q', '-m', '0', '-E', 'lazy_itable_init=1', image], log, as_root=True)
        self.run(['mount', '-o', 'loop', image, place], log, as_root=True)
        self.mounts.append(place)
        self.own(place)
        return place

    # ---- the end

    def marked(self):
        """Whoever has our mark was started by us."""
        mark = f'{MARK}={self.folder}'.encode()
        found = []
        for pid in processes():
            try:
                with open(f'/proc/{pid}/environ', 'rb') as file:
                    if pid != os.getpid() and mark in file.read().split(b'\0'):
                        found.append(pid)
            except OSError:
                pass
        return found

    def sweep(self):
        """Ends whatever runs, at once: what was to end in order has done so before."""
        def killed():
            for pid in self.marked():
                kill(pid, signal.SIGKILL)
            return not self.marked()

        wait_until(killed, 10)

    def close(self, keep):
        """Removes the folder, or keeps it, without what can be made again."""
        self.sweep()
        for place in self.mounts:
            subprocess.run(['umount', '--lazy', place], check=False)
        if keep:
            for heavy in 'server', 'tmp':
                shutil.rmtree(self.path(heavy), ignore_errors=True)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)


def shared_memory_of(pid):
    """The files of POSIX shared memory that a process has mapped: of a server that is killed they stay."""
    try:
        with open(f'/proc/{pid}/maps', encoding='utf-8', errors='replace') as file:
            return {line.split()[-1] for line in file if '/dev/shm/PostgreSQL.' in line}
    except OSError:
        return set()


def remove_shared_memory(files, segments):
    """Files of POSIX, and numbers of System V shared memory that nobody has any more."""
    for file in files & set(glob.glob('/dev/shm/PostgreSQL.*')):
        try:
            os.unlink(file)
        except OSError:
            pass
    for segment in segments:
        subprocess.run(['ipcrm', '-m', segment], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
