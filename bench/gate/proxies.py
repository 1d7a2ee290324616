"""How each proxy is started, in its best form for the purpose: bench/gate/measure.py asks.

Each relays from LISTEN to UPSTREAM, logs nothing, passes a half-close on, and does not end what is idle.
A process may have 20,000 descriptors: no proxy is asked for more flows than that allows.
"""

import os
import re
import subprocess

# Each measurement has a network namespace of its own, so that these are always free.
LISTEN = "127.0.0.1:7001"
UPSTREAM = "127.0.0.1:7000"
CONTROL = "127.0.0.1:7002"  # between the two halves of rathole
NGINX_STREAM = "/usr/lib/nginx/modules/ngx_stream_module.so"

DIRECT, GATE, HAPROXY_SPLICE = "direct", "gate", "haproxy-splice"
# `splice-auto` decides by itself whether to splice. Over loopback it was never seen to, however long
# the stream, so that it is not what is meant by HAProxy with splice.
SPLICE = {
    HAPROXY_SPLICE: ["option splice-request", "option splice-response"],
    "haproxy-auto": ["option splice-auto"],
    "haproxy": [],
}
HEADINGS = {
    GATE: "lastbyte gate",
    HAPROXY_SPLICE: "HAProxy, splice",
    "haproxy-auto": "HAProxy, splice-auto",
    "haproxy": "HAProxy",
    "nginx": "nginx stream",
    "socat": "socat",
    "rathole": "rathole",
    DIRECT: "no proxy",
}
PEERS = [*SPLICE, "nginx", "socat", "rathole"]


def commands_of(proxy, folder):
    """The processes that are this proxy, none for `direct`. Their files go into the folder."""
    if proxy == DIRECT:
        return []
    if proxy in SPLICE:
        return haproxy(folder, SPLICE[proxy])
    return {GATE: gate, "nginx": nginx, "socat": socat, "rathole": rathole}[proxy](folder)


def versions():
    """Of all that are here, in one line."""
    ask = {
        "lastbyte": [os.environ["LASTBYTE"], "--version"],
        "HAProxy": ["haproxy", "-v"],
        "nginx": ["nginx", "-v"],
        "socat": ["socat", "-V"],
        "rathole": [os.environ["RATHOLE"], "--version"],
    }
    return "; ".join(f"{name} {version_in(said_by(command))}" for name, command in ask.items())


def version_in(text):
    found = re.search(r"\b\d+\.\d+\.\d+\S*", text)
    return found.group() if found else "is not here"


def said_by(command):
    try:
        ran = subprocess.run(command, check=False, capture_output=True, text=True)
    except OSError:
        return ""
    return ran.stdout + ran.stderr


def has_gate():
    ask = [os.environ["LASTBYTE"], "gate", "--help"]
    try:
        return subprocess.run(ask, check=False, capture_output=True).returncode == 0
    except OSError:
        return False


def gate(_folder):
    return [[os.environ["LASTBYTE"], "gate", f"{LISTEN}={UPSTREAM}", "--log", "none"]]


# A connection takes two descriptors, and a pipe two for as long as it is in use. As they come, buffers
# are of 16 KiB and pipes of 64; larger ones took a third less processor time for bulk, and idle flows
# no more memory.
HAPROXY = """
global
  nbthread 2
  maxconn 9000
  maxpipes 500
  tune.bufsize 65536
  tune.pipesize 524288
defaults
  mode tcp
  timeout connect 10s
  timeout client 1h
  timeout server 1h
listen proxy
  {splice}
  bind {listen} backlog 16384
  server upstream {upstream}
"""


def haproxy(folder, splice):
    path = f"{folder}/haproxy.cfg"
    fields = {"listen": LISTEN, "upstream": UPSTREAM, "splice": "\n  ".join(splice)}
    write(path, HAPROXY.format(**fields))
    return [["haproxy", "-db", "-q", "-f", path]]


# Each of the two processes has its own queue of connections. A buffer is 16 KiB as it comes, which took
# a third more processor time for bulk; a flow keeps it.
NGINX = """
load_module {module};
user root;
daemon off;
pid {folder}/nginx.pid;
worker_processes 2;
worker_rlimit_nofile 20000;
events {{ worker_connections 9500; }}
stream {{
  access_log off;
  server {{
    listen {listen} reuseport backlog=16384;
    proxy_pass {upstream};
    proxy_half_close on;
    proxy_buffer_size 64k;
    proxy_connect_timeout 10s;
    proxy_timeout 1h;
  }}
}}
"""


def nginx(folder):
    path = f"{folder}/nginx.conf"
    fields = {"listen": LISTEN, "upstream": UPSTREAM, "module": NGINX_STREAM}
    write(path, NGINX.format(folder=folder, **fields))
    return [["nginx", "-e", "/dev/null", "-c", path]]


# With 8 KiB, as it comes, it would be a slow one.
def socat(_folder):
    host, port = LISTEN.split(":")
    options = "fork,reuseaddr,nodelay,backlog=16384"
    listen = f"TCP4-LISTEN:{port},bind={host},{options}"
    return [["socat", "-b", "65536", "-t", "3600", listen, f"TCP4:{UPSTREAM},nodelay"]]


RATHOLE = {
    "server": """
[server]
bind_addr = "{control}"
default_token = "bench"
[server.services.proxy]
bind_addr = "{listen}"
nodelay = true
""",
    "client": """
[client]
remote_addr = "{control}"
default_token = "bench"
[client.services.proxy]
local_addr = "{upstream}"
nodelay = true
""",
}


def rathole(folder):
    """Its two halves, both here."""
    fields = {"control": CONTROL, "listen": LISTEN, "upstream": UPSTREAM}
    commands = []
    for half, text in RATHOLE.items():
        path = f"{folder}/{half}.toml"
        write(path, text.format(**fields))
        commands.append([os.environ["RATHOLE"], f"--{half}", path])
    return commands


def write(path, text):
    with open(path, "w") as file:
        file.write(text)
