# SPDX-License-Identifier: Apache-2.0
"""Hosts that are network namespaces on one bridge, their links shaped both ways, and mpirun across them. Needs root.

Nothing is added to the machine's own network: the bridge lies in a namespace as well. All names carry this process's
id; close() ends what runs in the namespaces and removes them.
"""
import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

SUBNET = "10.213.77"
AGENT = """#!/bin/sh
# mpirun's remote shell: ADDRESS COMMAND...
name={prefix}-h${{1##*.}}
shift
exec ip netns exec "$name" unshare --uts sh -c "hostname $name; $*"
"""
# Hosts share no memory, and their daemons no processors to bind to.
MCA = {"plm": "rsh", "plm_rsh_no_tree_spawn": "1", "rtc": "^hwloc", "btl": "tcp,self",
       "btl_tcp_if_include": f"{SUBNET}.0/24", "oob_tcp_if_include": f"{SUBNET}.0/24"}


def can_run():
    """None, or why not."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "tc", "unshare", "mpirun"):
        if not shutil.which(tool):
            return f"{tool} is missing (Debian: iproute2, util-linux, openmpi-bin)"
    probe = f"terse{os.getpid()}-probe"
    if subprocess.run(["ip", "netns", "add", probe], capture_output=True).returncode != 0:
        return "network namespaces cannot be made here"
    subprocess.run(["ip", "netns", "delete", probe], capture_output=True)
    return None


def _ip(*words, check=True):
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if check and done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


class Network:
    """hosts numbered from 1; number 0 is where mpirun itself runs, its link is not shaped."""

    def __init__(self, hosts, megabit, delay_ms=0, congestion=None):
        self.prefix = f"terse{os.getpid()}"
        self.hosts = hosts
        self.megabit = megabit
        self.delay_ms = delay_ms
        self.congestion = congestion
        self.made = []
        self.runs = []
        self.folder = tempfile.mkdtemp(prefix=f"{self.prefix}-")
        atexit.register(self.close)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: sys.exit(1))
        try:
            self._build()
        except BaseException:
            self.close()
            raise

    def name(self, host):
        return f"{self.prefix}-h{host + 10}"

    @staticmethod
    def address(host):
        return f"{SUBNET}.{host + 10}"

    def _add(self, name):
        self.made.append(name)
        _ip("netns", "add", name)
        _ip("-n", name, "link", "set", "lo", "up")

    def _shape(self, namespace, link):
        words = ["tc", "-n", namespace, "qdisc", "add", "dev", link]
        # A small burst: what a round of sparse packets sends must not pass for free.
        shaper = ["handle", "1:", "tbf", "rate", f"{self.megabit}mbit", "burst", f"{max(16, self.megabit // 8)}kb",
                  "latency", "200ms"]
        subprocess.run(words + ["root"] + shaper, check=True)
        if self.delay_ms:
            subprocess.run(words + ["parent", "1:1", "netem", "delay", f"{self.delay_ms}ms", "limit", "20000"], check=True)

    def _build(self):
        self.bridge = f"{self.prefix}-bridge"
        self._add(self.bridge)
        _ip("-n", self.bridge, "link", "add", "br0", "type", "bridge")
        _ip("-n", self.bridge, "link", "set", "br0", "up")
        for host in range(self.hosts + 1):
            name, port = self.name(host), f"port{host}"
            self._add(name)
            _ip("-n", self.bridge, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("-n", self.bridge, "link", "set", port, "master", "br0", "up")
            _ip("-n", name, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            if self.congestion:
                _ip("netns", "exec", name, "sysctl", "-qw", f"net.ipv4.tcp_congestion_control={self.congestion}")
            if host > 0:
                self._shape(name, "eth0")        # what it sends
                self._shape(self.bridge, port)   # what it gets
        self.agent = os.path.join(self.folder, "agent.sh")
        with open(self.agent, "w") as file:
            file.write(AGENT.format(prefix=self.prefix))
        os.chmod(self.agent, 0o700)

        with open("/proc/sys/net/ipv4/tcp_congestion_control") as file:
            self.congestion = self.congestion or file.read().strip()

    def counters(self):
        """Bytes so far: {host: (sent, received)}."""
        links = json.loads(_ip("-n", self.bridge, "-j", "-s", "link"))
        found = {}
        for link in links:
            if link["ifname"].startswith("port") and link["ifname"] != "port0":
                sides = link["stats64"]
                found[int(link["ifname"][4:])] = (sides["rx"]["bytes"], sides["tx"]["bytes"])
        return found

    def pids(self, host):
        return [int(p) for p in _ip("netns", "pids", self.name(host), check=False).split()]

    def set_link(self, host, up):
        """Cuts a host off, as by pulling its cable at the switch, or puts it back. Connections stay, and wait."""
        _ip("-n", self.bridge, "link", "set", f"port{host}", "up" if up else "down")

    def words(self, parts, mca):
        """How mpirun is called. parts: [(hosts, words)], a rank on each host."""
        words = ["ip", "netns", "exec", self.name(0), "unshare", "--uts", "sh", "-c",
                 f'hostname {self.name(0)}; exec "$@"', "sh", "mpirun", "--tune", "configs/openmpi.conf"]
        settings = {**MCA, "plm_rsh_agent": self.agent, "orte_tmpdir_base": self.folder, **mca}
        for key, value in settings.items():
            words += ["--mca", key, value]
        for i, (hosts, command) in enumerate(parts):
            words += ([":"] if i else []) + ["--host", ",".join(self.address(h) for h in hosts), "-n", str(len(hosts))]
            words += [str(w) for w in command]
        return words

    def mpirun(self, parts, mca, seconds):
        """Returns a Launch that is running."""
        run = Launch(self.words(parts, mca), seconds)
        self.runs.append(run)
        return run

    def _end_all(self, names):
        """Whatever still runs in the namespaces was started here: the names are ours alone."""
        for number, patience in ((signal.SIGTERM, 1.0), (signal.SIGKILL, 3.0)):
            until = time.monotonic() + patience
            while True:
                pids = [int(p) for n in names for p in _ip("netns", "pids", n, check=False).split()]
                for pid in pids:
                    try:
                        os.kill(pid, number)
                    except ProcessLookupError:
                        pass
                if not pids or time.monotonic() > until:
                    break
                time.sleep(0.1)

    def close(self):
        names, self.made = self.made, []
        if not names and not os.path.exists(self.folder):
            return
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C must not leave half of it behind
        for run in self.runs:
            run.end()
        self._end_all(names)
        for name in names:
            _ip("netns", "delete", name, check=False)  # its links go with it
        shutil.rmtree(self.folder, ignore_errors=True)
        signal.signal(signal.SIGINT, signal.default_int_handler)


class Sites(Network):
    """Hosts of several sites: links inside a site are fast, each site's one link to the others is shaped both ways.

    sites: a list of hosts a site. Hosts that no site has, and number 0, stand in the middle.
    """

    def __init__(self, hosts, sites, megabit, delay_ms=0):
        self.sites = sites
        super().__init__(hosts, megabit, delay_ms)

    def _shape(self, namespace, link):
        if link.startswith("up"):
            super()._shape(namespace, link)

    def _build(self):
        super()._build()
        for number, hosts in enumerate(self.sites, 1):
            site, up = f"{self.prefix}-site{number}", f"up{number}"
            self._add(site)
            _ip("-n", site, "link", "add", "br0", "type", "bridge")
            _ip("-n", site, "link", "set", "br0", "up")
            _ip("-n", self.bridge, "link", "add", up, "type", "veth", "peer", "name", up, "netns", site)
            for namespace in (self.bridge, site):
                _ip("-n", namespace, "link", "set", up, "master", "br0", "up")
                self._shape(namespace, up)
            for host in hosts:
                port = f"port{host}"
                _ip("-n", self.bridge, "link", "set", port, "nomaster")
                _ip("-n", self.bridge, "link", "set", port, "netns", site)
                _ip("-n", site, "link", "set", port, "master", "br0", "up")

    def uplinks(self):
        """Bytes so far over each site's link: [(sent by the site, received)]."""
        links = {link["ifname"]: link["stats64"] for link in json.loads(_ip("-n", self.bridge, "-j", "-s", "link"))}
        return [(links[f"up{n}"]["rx"]["bytes"], links[f"up{n}"]["tx"]["bytes"]) for n in range(1, len(self.sites) + 1)]


class Launch:
    """One mpirun in a session of its own; its JSON lines as they come."""

    def __init__(self, words, seconds):
        env = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "OPENBLAS_NUM_THREADS": "1"}
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True, errors="replace", env=env, start_new_session=True)
        self.said = []
        self.timer = threading.Timer(seconds, self._kill)
        self.timer.daemon = True
        self.timer.start()

    def _kill(self):
        self.said.append("(its time was over)")
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def lines(self):
        """JSON objects; other output is kept in `said`. Ends with the process."""
        for line in self.process.stdout:
            line = line.strip()
            if line.startswith("{"):
                try:
                    yield json.loads(line)
                    continue
                except ValueError:
                    pass
            self.said.append(line)
        self.process.wait()
        self.timer.cancel()

    def end(self):
        self.timer.cancel()
        if self.process.poll() is None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.process.wait()
