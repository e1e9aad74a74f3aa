"""Calls a DigitalOcean API with pydo, and checks its behaviour and the form of its answers.

    drive.py URL TOKEN

The account has at least three Droplets with the tag `k8s`, and a certificate. Exits with 1 if a check fails or an answer differs.
"""

import json
import sys
import time
import urllib.error
import urllib.request
import uuid

import pydo
from azure.core.exceptions import HttpResponseError

import shapes

URL, TOKEN = sys.argv[1].rstrip("/"), sys.argv[2]
CLIENT = pydo.Client(token=TOKEN, endpoint=URL, retry_total=0)
# Fields that the API has, but not pydo's description of its answers.
EXTRA = (".load_balancer.ip", ".load_balancer.tags", ".load_balancer.health_check.proxy_protocol")
PASSED, FAILED, DIFFERENCES, LAST = [], [], set(), {}


def keep(pipeline, value, _):
    LAST.update(status=pipeline.http_response.status_code, headers=pipeline.http_response.headers)
    return value


def call(service, operation, *args, **kwargs):
    """Returns the answer of one pydo call, after comparing it with the description."""
    group = getattr(CLIENT, service)
    value = getattr(group, operation)(*args, cls=keep, enforce_https=False, **kwargs)
    docs = [vars(owner)[operation].__doc__ for owner in type(group).__mro__ if operation in vars(owner)]
    described = next(filter(None, map(shapes.templates, docs)), {})
    status = LAST["status"]
    if value is not None and described and status not in described:
        DIFFERENCES.add(f"{service}.{operation}: status {status} is not documented")
    elif value is not None and described:
        for text in shapes.differences(value, described[status]):
            if text.replace("balancers[]", "balancer").partition(":")[0] not in EXTRA:
                DIFFERENCES.add(f"{service}.{operation} {status}: {text}")
    return value


def raw(method, path, body=None):
    """Status and error ID of a request without pydo."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    try:
        with urllib.request.urlopen(urllib.request.Request(URL + path, data, headers, method=method)) as answer:
            return answer.status, None
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"{}").get("id")


def check(what, expected, action):
    try:
        got = action()
    except HttpResponseError as error:
        got = error.status_code
    (PASSED if got == expected else FAILED).append(what)
    if got != expected:
        print(f"FAILED: {what}: expected {expected!r}, got {got!r}")
    return got


def pages(service, size, **filters):
    """Number of pages and all items of a list, found with the links."""
    items, page, count = [], 1, 0
    while page and count < 100:
        answer = call(service, "list", page=page, per_page=size, **filters)
        items += answer[service]
        count += 1
        following = answer.get("links", {}).get("pages", {}).get("next", "")
        page = next((int(pair[5:]) for pair in following.partition("?")[2].split("&") if pair.startswith("page=")), None)
    return count, items


def rule(port=80, target=30080, protocol="tcp"):
    return {"entry_protocol": protocol, "entry_port": port, "target_protocol": protocol, "target_port": target}


def account():
    other = pydo.Client(token="wrong", endpoint=URL, retry_total=0)
    check("a wrong token", 401, lambda: other.account.get(enforce_https=False))
    check("the account", "active", lambda: call("account", "get")["account"]["status"])
    headers = LAST["headers"]
    names = ("ratelimit-limit", "ratelimit-remaining", "ratelimit-reset")
    check("rate limit headers", True, lambda: all(headers[name].isdigit() for name in names))
    check("the reset is in the next hour", True, lambda: 0 < int(headers["ratelimit-reset"]) - time.time() <= 3601)
    call("account", "get")
    check("a call is counted", 1, lambda: int(headers["ratelimit-remaining"]) - int(LAST["headers"]["ratelimit-remaining"]))
    check("regions", True, lambda: all(region["slug"] for region in call("regions", "list")["regions"]))
    check("one default VPC", 1, lambda: sum(vpc["default"] for vpc in call("vpcs", "list")["vpcs"]))
    check("an unknown path", (404, "not_found"), lambda: raw("GET", "/v2/nonsense"))
    check("an invalid body", (400, "bad_request"), lambda: raw("POST", "/v2/load_balancers", b"{nonsense"))


def droplets():
    everything = call("droplets", "list", per_page=200)["droplets"]
    check("pages of Droplets", (-(-len(everything) // 2), everything), lambda: pages("droplets", 2))
    check("total of Droplets", len(everything), lambda: call("droplets", "list", per_page=1)["meta"]["total"])
    check("a page after the last", [], lambda: call("droplets", "list", page=99)["droplets"])
    one, tagged = everything[0], [droplet for droplet in everything if "k8s" in droplet["tags"]]
    check("a Droplet", one, lambda: call("droplets", "get", one["id"])["droplet"])
    check("an unknown Droplet", (404, "not_found"), lambda: raw("GET", "/v2/droplets/999999999"))
    check("a name in capitals", [one], lambda: call("droplets", "list", name=one["name"].upper())["droplets"])
    check("a part of a name", [], lambda: call("droplets", "list", name=one["name"][:-1])["droplets"])
    check("a tag, in pages", tagged, lambda: pages("droplets", 2, tag_name="k8s")[1])
    check("GPU Droplets", [], lambda: call("droplets", "list", type="gpus")["droplets"])
    for kind, status in (("power_off", "off"), ("power_on", "active")):
        check(kind, "completed", lambda: call("droplet_actions", "post", one["id"], {"type": kind})["action"]["status"])
        check(f"{kind}: the status", status, lambda: call("droplets", "get", one["id"])["droplet"]["status"])
    check("actions", True, lambda: call("actions", "list")["meta"]["total"] >= 2)
    return tagged


def body_of(nodes, **changes):
    check_ = {"protocol": "http", "port": 10256, "path": "/healthz", "check_interval_seconds": 3, "response_timeout_seconds": 5,
              "unhealthy_threshold": 3, "healthy_threshold": 5, "proxy_protocol": False}
    return {"name": f"judge-{uuid.uuid4().hex[:8]}", "region": nodes[0]["region"]["slug"], "forwarding_rules": [rule()],
            "droplet_ids": [node["id"] for node in nodes[:2]], "vpc_uuid": nodes[0]["vpc_uuid"], "type": "REGIONAL",
            "network": "EXTERNAL", "network_stack": "IPV4", "health_check": check_, "sticky_sessions": {"type": "none"},
            "firewall": {}, "disable_lets_encrypt_dns_records": False, "tags": ["k8s:judge"]} | changes


def become_active(key):
    end = time.time() + 30
    while (found := call("load_balancers", "get", key)["load_balancer"])["status"] == "new" and time.time() < end:
        time.sleep(0.2)
    return found


def load_balancers(nodes):
    body = body_of(nodes)
    made = call("load_balancers", "create", body)["load_balancer"]
    key, path = made["id"], f"/v2/load_balancers/{made['id']}"
    check("a new load balancer", (202, "new", ""), lambda: (LAST["status"], made["status"], made["ip"]))
    check("its region and Droplets", (body["region"], body["droplet_ids"]), lambda: (made["region"]["slug"], made["droplet_ids"]))
    found = become_active(key)
    check("an active load balancer", ("active", 3, ""), lambda: (found["status"], found["ip"].count("."), found["ipv6"]))
    check("its health check", body["health_check"], lambda: found["health_check"])
    check("the list", [found], lambda: [item for item in pages("load_balancers", 1)[1] if item["id"] == key])

    def get():
        return call("load_balancers", "get", key)["load_balancer"]

    def put(**changes):
        return call("load_balancers", "update", key, body | changes)["load_balancer"]

    def entry_ports():
        return [rule["entry_port"] for rule in get()["forwarding_rules"]]

    put(forwarding_rules=[rule(), rule(443)])
    check("more rules", [80, 443], entry_ports)
    rules = {"allow": ["cidr:10.0.0.0/8"], "deny": ["ip:192.0.2.1"]}
    put(http_idle_timeout_seconds=120, enable_proxy_protocol=True, firewall=rules)
    check("firewall rules", rules, lambda: get()["firewall"])
    check("defaults of a PUT", found, put)
    call("load_balancers", "update", key, {name: body[name] for name in ("name", "region", "forwarding_rules")})
    defaults = {"protocol": "http", "port": 80, "path": "/", "check_interval_seconds": 10, "response_timeout_seconds": 5,
                "unhealthy_threshold": 5, "healthy_threshold": 3}
    check("the default health check", (defaults, []), lambda: (get()["health_check"], get()["droplet_ids"]))
    call("load_balancers", "add_droplets", key, {"droplet_ids": body["droplet_ids"]})
    call("load_balancers", "remove_droplets", key, {"droplet_ids": body["droplet_ids"][:1]})
    check("added and removed Droplets", body["droplet_ids"][1:], lambda: get()["droplet_ids"])
    call("load_balancers", "add_forwarding_rules", key, {"forwarding_rules": [rule(8080)]})
    check("added rules", [80, 8080], entry_ports)
    check("a fixed field", (422, "unprocessable_entity"), lambda: raw("PUT", path, body | {"network": "INTERNAL"}))
    for changes in ({"name": body["name"]}, {"forwarding_rules": []}, {"forwarding_rules": [rule(50053)]}, {"droplet_ids": [1]},
                    {"size": "lb-small", "size_unit": 2}, {"http_idle_timeout_seconds": 5}, {"region": "moon1"},
                    {"firewall": {"allow": ["192.0.2.1"]}}, {"sticky_sessions": {"type": "cookies"}}):
        rejected = body_of(nodes, **changes)
        check(f"rejected: {changes}", (422, "unprocessable_entity"), lambda: raw("POST", "/v2/load_balancers", rejected))
    validated = body_of(nodes, validate_only=True)
    call("load_balancers", "create", validated)
    check("a validation", False, lambda: validated["name"] in [item["name"] for item in pages("load_balancers", 50)[1]])
    check("deletions", [(204, None), (404, "not_found")], lambda: [raw("DELETE", path), raw("DELETE", path)])
    rules = [rule(53, 53), rule(53, 53, "udp")]
    dual = body_of(nodes, type="REGIONAL_NETWORK", network_stack="DUALSTACK", forwarding_rules=rules)
    dual = become_active(call("load_balancers", "create", dual)["load_balancer"]["id"])
    check("a dual-stack load balancer", ("REGIONAL_NETWORK", True), lambda: (dual["type"], ":" in dual["ipv6"]))
    raw("DELETE", f"/v2/load_balancers/{dual['id']}")


def tags_and_certificates(nodes):
    name, resources = "k8s:judged", {"resources": [{"resource_id": str(nodes[0]["id"]), "resource_type": "droplet"}]}
    check("an unknown tag", (404, "not_found"), lambda: raw("POST", f"/v2/tags/{name}/resources", resources))
    check("a new tag", name, lambda: call("tags", "create", {"name": name})["tag"]["name"])
    call("tags", "assign_resources", name, resources)
    check("a tagged Droplet", 1, lambda: call("tags", "get", name)["tag"]["resources"]["count"])
    call("tags", "unassign_resources", name, resources)
    check("an untagged Droplet", [], lambda: call("droplets", "list", tag_name=name)["droplets"])
    call("tags", "delete", name)
    check("a deleted tag", (404, "not_found"), lambda: raw("GET", f"/v2/tags/{name}"))
    one = call("certificates", "list")["certificates"][0]
    check("a certificate by name", [one], lambda: call("certificates", "list", name=one["name"], per_page=1)["certificates"])
    check("a certificate by ID", one, lambda: call("certificates", "get", one["id"])["certificate"])
    check("an unknown certificate", [], lambda: call("certificates", "list", name="unknown")["certificates"])


def firewalls():
    peers = {"addresses": ["0.0.0.0/0", "::/0"]}
    outbound = [{"protocol": "tcp", "ports": "all", "destinations": peers}, {"protocol": "icmp", "destinations": peers}]
    body = {"name": f"judge-{uuid.uuid4().hex[:8]}", "outbound_rules": outbound,
            "inbound_rules": [{"protocol": "tcp", "ports": "30080", "sources": peers}],
            "droplet_ids": None, "tags": None}
    key = call("firewalls", "create", body)["firewall"]["id"]
    path = f"/v2/firewalls/{key}"
    check("a new firewall", 202, lambda: LAST["status"])
    check("all ports", ["0", "0"], lambda: [r["ports"] for r in call("firewalls", "get", key)["firewall"]["outbound_rules"]])
    check("the list of firewalls", True, lambda: key in [item["id"] for item in pages("firewalls", 1)[1]])
    replaced = call("firewalls", "update", key, body | {"inbound_rules": None})["firewall"]
    check("a replaced firewall", [], lambda: replaced["inbound_rules"])
    check("a name in use", (409, "conflict"), lambda: raw("POST", "/v2/firewalls", body))
    check("a deleted firewall", [(204, None), (404, "not_found")], lambda: [raw("DELETE", path), raw("GET", path)])


account()
NODES = droplets()
load_balancers(NODES)
tags_and_certificates(NODES)
firewalls()
for text in sorted(DIFFERENCES):
    print(f"DIFFERENCE: {text}")
print(f"{len(PASSED)} checks passed, {len(FAILED)} failed, {len(DIFFERENCES)} differences")
sys.exit(bool(FAILED or DIFFERENCES))
