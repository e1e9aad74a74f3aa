#!/usr/bin/python3
"""record.py FOLDER TARGET [STORY...]: record the responses of a real OpenStack.

FOLDER contains the clouds.yaml and ids.json that `up` wrote; record.py writes one file per
story to TARGET. A story is a sequence of requests with their responses, on a new cloud
that only contains the resources that `up` created. Waiting for a load balancer is one
entry, without the polling requests.

Values that differ between runs are normalized, so that a second recording differs from
the first only if the services differ: IDs are numbered in order of appearance, times and
MAC addresses are replaced by fixed values, and endpoints are named after their service.
Tokens and secrets are omitted.
"""
import json
import pathlib
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

import stories

KEPT_HEADERS = ("Content-Type", "Location", "X-Subject-Token", "WWW-Authenticate", "Retry-After", "Link")
ID = re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b|\b[0-9a-f]{32}\b")
TIME = re.compile(r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?")
MAC = re.compile(r"\bfa:16:3e(:[0-9a-f]{2}){3}\b")
SECRET_KEYS = ("password", "secret", "audit_ids")
INVALID_TOKEN = {"X-Auth-Token": "invalid"}


class Names:
    """Stable replacements for generated values."""

    def __init__(self, endpoints):
        self.endpoints = endpoints
        self.ids = {}
        self.macs = {}

    def number(self, found):
        text = found.group(0)
        number = self.ids.setdefault(text, len(self.ids) + 1)
        if "-" in text:
            return "%08d-0000-4000-8000-%012d" % (number, number)
        return "%032d" % number

    def mac(self, found):
        number = self.macs.setdefault(found.group(0), len(self.macs) + 1)
        return "fa:16:3e:00:%02x:%02x" % divmod(number, 256)

    def text(self, text):
        for url, service in self.endpoints.items():
            text = text.replace(url, "http://%s.example" % service)
        text = ID.sub(self.number, text)
        text = MAC.sub(self.mac, text)
        return TIME.sub(lambda t: "2026-01-01T00:00:00" + (".000000" if t.group(1) else ""), text)

    def value(self, value, key=None):
        if isinstance(value, dict):
            return {k: self.value(v, k) for k, v in value.items()}
        if isinstance(value, list):
            return ["***" for _ in value] if key in SECRET_KEYS else [self.value(v) for v in value]
        if isinstance(value, str):
            return "***" if key in SECRET_KEYS else self.text(value)
        return value


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def __getitem__(self, key):
        return self.body[key]


class Service:
    """Client of one endpoint as one user; without `recorder`, requests are not recorded."""

    def __init__(self, kind, url, headers, recorder=None):
        self.kind, self.url, self.headers, self.recorder = kind, url, headers, recorder

    def __call__(self, method, path, body=None, headers=None):
        sent = {"Content-Type": "application/json", **self.headers, **(headers or {})}
        answer = send(method, self.url + path, body, sent)
        if self.recorder:
            self.recorder.record(self, method, path, body, headers, answer)
        return answer

    def get(self, path, **more):
        return self("GET", path, **more)

    def post(self, path, body, **more):
        return self("POST", path, body, **more)

    def put(self, path, body=None, **more):
        return self("PUT", path, body, **more)

    def delete(self, path, **more):
        return self("DELETE", path, **more)


def send(method, url, body, headers):
    data = None if body is None else json.dumps(body).encode()
    # Filters are sent as the provider sends them; only spaces must be escaped in the request line.
    request = urllib.request.Request(url.replace(" ", "%20"), data, headers, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), NoRedirect())
    try:
        with opener.open(request, timeout=120) as reply:
            return read(reply.status, reply)
    except urllib.error.HTTPError as error:
        return read(error.code, error)


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Returns redirects as responses instead of following them."""

    def redirect_request(self, *_):
        return None

    def http_error_300(self, request, reply, code, message, headers):
        return reply


def read(status, reply):
    text = reply.read().decode()
    try:
        body = json.loads(text) if text else None
    except ValueError:
        body = text
    return Answer(status, reply.headers, body)


class Recorder:
    """Collects the requests and responses of one story."""

    def __init__(self, cloud, name, about):
        self.cloud, self.name, self.about, self.entries = cloud, name, about, []
        for kind, url in cloud.urls.items():
            name = kind.replace("-", "")
            setattr(self, name, Service(kind, url, cloud.token("k8s"), self))
            setattr(self, "admin_" + name, Service(kind, url, cloud.token("admin"), self))
            setattr(self, "quiet_" + name, Service(kind, url, cloud.token("k8s")))
            setattr(self, "invalid_" + name, Service(kind, url, INVALID_TOKEN, self))
        self.ids = cloud.ids
        self.clouds = cloud.clouds

    def record(self, service, method, path, body, headers, answer):
        names = self.cloud.names
        headers = {**(INVALID_TOKEN if service.headers == INVALID_TOKEN else {}), **(headers or {})}
        path = service.url[service.url.index("/", 8):] + path if service.url.count("/") > 2 else path
        kept = {h: names.text(answer.headers[h]) for h in KEPT_HEADERS if answer.headers.get(h)}
        if "X-Subject-Token" in kept:
            kept["X-Subject-Token"] = "***"
        entry = {"as": "admin"} if service.headers == self.cloud.token("admin") else {}
        self.entries.append(entry | {
            "service": service.kind, "method": method, "path": names.text(path),
            "headers": names.value(headers), "body": names.value(body),
            "status": answer.status, "answer_headers": kept, "answer": names.value(answer.body)})

    def waited(self, balancer, outcome):
        self.entries.append({"wait": outcome, "loadbalancer": self.cloud.names.text(balancer)})

    def until(self, send, done, seconds=120):
        """Repeats a request until the response is the expected one."""
        end = time.monotonic() + seconds
        while True:
            answer = send()
            if done(answer):
                return answer
            if time.monotonic() > end:
                raise SystemExit("%s: timeout, last response %s" % (self.name, answer.body))
            time.sleep(0.1)

    def write(self, target):
        bound = {key: id for key, id in self.ids.items() if isinstance(id, str)}
        bound.update({"servers": {name: server["id"] for name, server in self.ids["servers"].items()}})
        recording = {"about": self.about, "bound": self.cloud.names.value(bound), "entries": self.entries}
        (target / (self.name + ".json")).write_text(json.dumps(recording, indent=1) + "\n")
        print("%-32s %3d entries" % (self.name, len(self.entries)))


class Cloud:
    def __init__(self, folder):
        self.clouds = json.loads((folder / "clouds.yaml").read_text())["clouds"]
        self.ids = json.loads((folder / "ids.json").read_text())
        self.tokens = {}
        self.urls = {}
        self.token("admin")
        self.token("k8s")
        self.names = Names({url.split("/v2.1")[0]: service for service, url in self.urls.items()})
        for text in json.dumps(self.ids).split('"'):
            self.names.text(text)

    def token(self, user):
        if user not in self.tokens:
            auth = self.clouds[user]["auth"]
            url = auth["auth_url"] + "/v3/auth/tokens"
            answer = send("POST", url, stories.by_password(auth), {"Content-Type": "application/json"})
            self.tokens[user] = {"X-Auth-Token": answer.headers["X-Subject-Token"]}
            for service in answer["token"]["catalog"]:
                self.urls[service["type"]] = service["endpoints"][0]["url"]
        return self.tokens[user]


def main(folder, target, *selected):
    cloud = Cloud(pathlib.Path(folder))
    target = pathlib.Path(target)
    target.mkdir(parents=True, exist_ok=True)
    for story in stories.ALL:
        name = story.__name__.replace("_", "-")
        if selected and name not in selected:
            continue
        recorder = Recorder(cloud, name, " ".join(story.__doc__.split()))
        story(recorder)
        recorder.write(target)


if __name__ == "__main__":
    main(*sys.argv[1:])
