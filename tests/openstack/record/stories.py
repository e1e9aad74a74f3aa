"""Requests to all services except Octavia: one function per recording; its docstring is stored in the file."""
import base64

import balancers

MISSING = "11111111-2222-3333-4444-555555555555"


# --- identity -----------------------------------------------------------------
def by_password(auth, scope=True):
    user = {"name": auth["username"], "password": auth["password"], "domain": {"name": "Default"}}
    body = {"auth": {"identity": {"methods": ["password"], "password": {"user": user}}}}
    if scope:
        body["auth"]["scope"] = {"project": {"name": auth["project_name"], "domain": {"name": "Default"}}}
    return body


def by_application_credential(credential, scope=None):
    body = {"auth": {"identity": {"methods": ["application_credential"], "application_credential": credential}}}
    if scope:
        body["auth"]["scope"] = scope
    return body


def tokens(r):
    """Tokens by password, application credential and token, with each scope, and rejected requests."""
    user, credential = r.clouds["k8s"]["auth"], r.clouds["k8s-appcred"]["auth"]
    project, user_id = {"id": r.ids["project"]}, r.ids["user"]
    request = lambda body: r.identity.post("/v3/auth/tokens", body, headers={"X-Auth-Token": ""})
    r.identity.get("/")
    r.identity.get("/v3")
    request(by_password(user))
    by_id = by_password(user)
    by_id["auth"]["identity"]["password"]["user"] = {"id": user_id, "password": user["password"]}
    by_id["auth"]["scope"] = {"project": project}
    given = request(by_id).headers["X-Subject-Token"]
    request(by_password(user, scope=False))
    request(by_password({**user, "password": "nonsense"}))
    request(by_password({**user, "username": "nobody"}))
    request(by_password({**user, "project_name": "nowhere"}))
    domain = by_password(user)
    domain["auth"]["scope"] = {"domain": {"name": "Default"}}
    request(domain)
    both = {"id": credential["application_credential_id"], "secret": credential["application_credential_secret"]}
    request(by_application_credential(both))
    request(by_application_credential({**both, "secret": "nonsense"}))
    request(by_application_credential({**both, "id": MISSING.replace("-", "")}))
    request(by_application_credential(both, {"project": project}))
    named = {"name": "cloud-provider", "secret": both["secret"], "user": {"id": user_id}}
    request(by_application_credential(named))
    # Recordings contain no tokens, so this request is recorded with a placeholder.
    token = {"auth": {"identity": {"methods": ["token"], "token": {"id": given}}, "scope": {"project": project}}}
    answer = r.quiet_identity.post("/v3/auth/tokens", token)
    token["auth"]["identity"]["token"]["id"] = "***"
    r.record(r.identity, "POST", "/v3/auth/tokens", token, {"X-Auth-Token": ""}, answer)
    token["auth"]["identity"]["token"]["id"] = "nonsense"
    request(token)
    request({"auth": {}})
    request({})


def trusts(r):
    """A token by trust, and by a trust that does not exist."""
    admin = r.clouds["admin"]["auth"]
    users = r.admin_identity.get("/v3/users?name=admin")["users"]
    trust = r.identity.post("/v3/OS-TRUST/trusts", {"trust": {
        "trustor_user_id": r.ids["user"], "trustee_user_id": users[0]["id"], "project_id": r.ids["project"],
        "impersonation": False, "roles": [{"name": "member"}]}})["trust"]
    body = by_password(admin)
    body["auth"]["scope"] = {"OS-TRUST:trust": {"id": trust["id"]}}
    r.identity.post("/v3/auth/tokens", body, headers={"X-Auth-Token": ""})
    body["auth"]["scope"] = {"OS-TRUST:trust": {"id": MISSING.replace("-", "")}}
    r.identity.post("/v3/auth/tokens", body, headers={"X-Auth-Token": ""})
    r.identity.delete("/v3/OS-TRUST/trusts/" + trust["id"])


def strangers(r):
    """An invalid token, with every service."""
    r.invalid_compute.get("/servers/detail")
    r.invalid_network.get("/v2.0/ports")
    r.invalid_loadbalancer.get("/v2.0/lbaas/loadbalancers")
    r.invalid_keymanager.get("/v1/secrets/" + MISSING)


# --- compute ------------------------------------------------------------------
def servers(r):
    """Servers by page, name and ID, and their flavors."""
    ids = r.ids["servers"]
    r.compute.get("/servers/detail")
    page = r.compute.get("/servers/detail?limit=1")
    while page.body.get("servers_links"):
        page = r.compute.get(page["servers_links"][0]["href"].split("/v2.1")[1])
    r.compute.get("/servers/detail?limit=1000")
    r.compute.get("/servers/detail?limit=2&marker=" + ids["node-1"]["id"])
    r.compute.get("/servers/detail?marker=" + MISSING)
    for name in ("^node-1$", "^node.1$", "^node\\.1$", "node", "^nobody$", "^node-1$&limit=1", "[", "^node%2D1$"):
        r.compute.get("/servers/detail?name=" + name)
    r.compute.get("/servers/" + ids["node-1"]["id"])
    r.compute.get("/servers/" + MISSING)
    r.compute.get("/servers/not-an-id")
    r.compute.get("/flavors/" + r.ids["flavor"])
    r.compute.get("/flavors/m1.tiny")
    r.compute.get("/flavors/" + MISSING)
    r.compute.get("/flavors/detail")
    r.compute.get("/servers/" + ids["node-1"]["id"], headers={"X-OpenStack-Nova-API-Version": "2.47"})
    r.compute.get("/servers/detail?all_tenants=1")
    r.compute.get("/limits")


def life_of_a_server(r):
    """A server from creation to deletion, with stop, start, metadata and a floating IP."""
    created = r.compute.post("/servers", {"server": {
        "name": "record-1", "imageRef": r.ids["image"], "flavorRef": r.ids["flavor"],
        "networks": [{"uuid": r.ids["network"]}], "availability_zone": "az-2"}})
    path = "/servers/" + created["server"]["id"]
    status = lambda expected: r.until(
        lambda: r.quiet_compute.get(path), lambda a: a["server"]["status"] == expected and not a["server"]["OS-EXT-STS:task_state"])
    status("ACTIVE")
    r.compute.get(path)
    ports = r.network.get("/v2.0/ports?device_id=" + created["server"]["id"])["ports"]
    floating = r.network.post("/v2.0/floatingips", {"floatingip": {
        "floating_network_id": r.ids["external_network"], "port_id": ports[0]["id"]}})["floatingip"]
    r.until(lambda: r.quiet_compute.get(path), lambda a: "floating" in str(a["server"]["addresses"]), 90)
    r.compute.get(path)
    r.network.delete("/v2.0/floatingips/" + floating["id"])
    r.compute.post(path + "/metadata", {"metadata": {"hostname": "record-1.example"}})
    r.compute.post(path + "/action", {"os-stop": None})
    status("SHUTOFF")
    r.compute.get(path)
    r.compute.post(path + "/action", {"os-stop": None})
    r.compute.post(path + "/action", {"os-start": None})
    status("ACTIVE")
    r.compute.post(path + "/action", {"pause": None})
    status("PAUSED")
    r.compute.get(path)
    r.compute.delete(path)
    r.until(lambda: r.quiet_compute.get(path), lambda a: a.status == 404)
    r.compute.get(path)
    r.compute.get("/servers/detail?name=^record-1$")
    r.compute.delete(path)
    r.network.get("/v2.0/ports?device_id=" + created["server"]["id"])


# --- network ------------------------------------------------------------------
def networks(r):
    """Extensions, networks and subnets, with tag filters."""
    r.network.get("/")
    r.network.get("/v2.0/extensions")
    r.network.get("/v2.0/networks")
    r.network.get("/v2.0/networks?router:external=true")
    r.network.get("/v2.0/networks/" + r.ids["network"])
    r.network.get("/v2.0/networks/" + MISSING)
    r.network.get("/v2.0/networks?limit=1")
    r.network.get("/v2.0/subnets/" + r.ids["subnet"])
    r.network.get("/v2.0/subnets/" + r.ids["external_subnet"])
    r.network.get("/v2.0/subnets/" + MISSING)
    made = []
    for number, tags in ((1, ["a"]), (2, ["b"]), (3, ["a", "b"]), (4, [])):
        subnet = r.network.post("/v2.0/subnets", {"subnet": {
            "name": "record-%d" % number, "network_id": r.ids["network"], "ip_version": 4,
            "cidr": "10.20.%d.0/24" % number, "enable_dhcp": False}})["subnet"]
        made.append(subnet["id"])
        if tags:
            r.network.put("/v2.0/subnets/%s/tags" % subnet["id"], {"tags": tags})
    here = "/v2.0/subnets?network_id=" + r.ids["network"]
    for filter in ("", "&tags=a,b", "&tags-any=a,b", "&not-tags=a,b", "&not-tags-any=a,b", "&tags=c", "&not-tags=a",
                   "&name=record-1", "&ip_version=6", "&limit=2"):
        r.network.get(here + filter)
    for subnet in made:
        r.network.delete("/v2.0/subnets/" + subnet)


def ports(r):
    """Ports by server, address and security group, paged lists, and updates."""
    node = r.ids["servers"]["node-1"]
    address = node["addresses"][0]
    r.network.get("/v2.0/ports?limit=2")
    r.network.get("/v2.0/ports?project_id=%s&device_owner=compute:az-1&limit=1000" % r.ids["project"])
    port = r.network.get("/v2.0/ports?device_id=" + node["id"])["ports"][0]
    r.network.get("/v2.0/ports?device_id=%s&device_id=%s" % (node["id"], r.ids["servers"]["node-2"]["id"]))
    r.network.get("/v2.0/ports?device_id=" + MISSING)
    r.network.get("/v2.0/ports?fixed_ips=ip_address=" + address)
    r.network.get("/v2.0/ports?fixed_ips=ip_address=%s&network_id=%s" % (address, r.ids["network"]))
    r.network.get("/v2.0/ports?fixed_ips=ip_address=%s&network_id=%s" % (address, r.ids["external_network"]))
    r.network.get("/v2.0/ports?fixed_ips=ip_address=10.10.0.251")
    r.network.get("/v2.0/ports?fixed_ips=subnet_id=%s&limit=1" % r.ids["subnet"])
    r.network.get("/v2.0/ports?security_groups=" + r.ids["security_group"])
    r.network.get("/v2.0/ports?device_id=%s&fields=id&fields=fixed_ips" % node["id"])
    path = "/v2.0/ports/" + port["id"]
    r.network.get(path)
    r.network.get("/v2.0/ports/" + MISSING)
    groups = port["security_groups"]
    extra = r.network.post("/v2.0/security-groups", {"security_group": {"name": "record"}})["security_group"]["id"]
    r.network.put(path, {"port": {"security_groups": groups + [extra]}})
    revision = r.network.get(path)["port"]["revision_number"]
    r.network.put(path, {"port": {"security_groups": groups}}, headers={"If-Match": "revision_number=%d" % (revision - 1)})
    r.network.put(path, {"port": {"security_groups": groups}}, headers={"If-Match": "revision_number=%d" % revision})
    r.network.put(path, {"port": {"security_groups": groups + [MISSING]}})
    r.network.put(path, {"port": {"allowed_address_pairs": [{"ip_address": "10.244.1.0/24"}]}})
    pairs = r.network.get(path)["port"]["allowed_address_pairs"]
    r.network.put(path, {"port": {"allowed_address_pairs": pairs + [{"ip_address": "10.244.1.0/24"}]}})
    r.network.put(path, {"port": {"allowed_address_pairs": pairs + [{"ip_address": "10.244.2.0/24"}]}})
    r.network.put(path, {"port": {"allowed_address_pairs": [{"ip_address": "nonsense"}]}})
    r.network.put(path, {"port": {"allowed_address_pairs": []}})
    r.network.put(path + "/tags/" + extra)
    r.network.get(path)
    r.network.delete(path + "/tags/" + extra)
    r.network.delete(path + "/tags/" + extra)
    r.network.delete("/v2.0/security-groups/" + extra)
    off = r.network.post("/v2.0/ports", {"port": {
        "network_id": r.ids["network"], "name": "record", "port_security_enabled": False}})["port"]["id"]
    r.network.get("/v2.0/ports/" + off)
    r.network.put("/v2.0/ports/" + off, {"port": {"allowed_address_pairs": [{"ip_address": "10.244.1.0/24"}]}})
    r.network.put("/v2.0/ports/" + off, {"port": {"security_groups": groups}})
    r.network.delete("/v2.0/ports/" + off)


def routes(r):
    """Extra routes of a router, replaced as a whole and changed one by one."""
    path = "/v2.0/routers/" + r.ids["router"]
    hops = [s["addresses"][0] for s in r.ids["servers"].values()]
    route = lambda number, hop: {"destination": "10.244.%d.0/24" % number, "nexthop": hop}
    whole = lambda *routes: {"router": {"routes": list(routes)}}
    r.network.get(path)
    r.network.get("/v2.0/routers/" + MISSING)
    r.network.get("/v2.0/ports?device_id=" + r.ids["router"])
    r.network.put(path + "/add_extraroutes", whole(route(1, hops[0])))
    r.network.put(path + "/add_extraroutes", whole(route(1, hops[0])))
    r.network.put(path + "/add_extraroutes", whole(route(1, hops[1])))
    r.network.put(path + "/add_extraroutes", whole(route(2, hops[1]), route(3, hops[2])))
    r.network.get(path)
    r.network.put(path + "/remove_extraroutes", whole(route(1, hops[1])))
    r.network.put(path + "/remove_extraroutes", whole(route(1, hops[1])))
    r.network.put(path + "/remove_extraroutes", whole(route(9, "10.10.0.9")))
    r.network.put(path + "/add_extraroutes", whole(route(4, "192.0.2.1")))
    r.network.put(path + "/add_extraroutes", whole(route(4, "nonsense")))
    r.network.put(path + "/add_extraroutes", whole({"destination": "10.244.4.0", "nexthop": hops[0]}))
    r.network.put(path + "/add_extraroutes", whole({"destination": "10.244.4.1/24", "nexthop": hops[0]}))
    r.network.put(path, whole(route(5, hops[0])))
    r.network.put(path, whole(route(5, hops[0]), route(5, hops[0])))
    r.network.put(path, whole(route(5, "192.0.2.1")))
    r.network.put("/v2.0/routers/%s/add_extraroutes" % MISSING, whole(route(1, hops[0])))
    r.network.put(path, whole())
    r.network.get(path)


def floating_ips(r):
    """Floating IPs: created with and without a port, moved, rejected, deleted."""
    ports = [r.network.post("/v2.0/ports", {"port": {"network_id": r.ids["network"], "name": "record-%d" % n}})
             ["port"]["id"] for n in (1, 2)]
    outside = {"floating_network_id": r.ids["external_network"]}
    make = lambda **more: r.network.post("/v2.0/floatingips", {"floatingip": {**outside, **more}})
    move = lambda id, port: r.network.put("/v2.0/floatingips/" + id, {"floatingip": {"port_id": port}})
    first = make(port_id=ports[0], description="record")["floatingip"]
    r.network.get("/v2.0/floatingips?port_id=" + ports[0])
    r.network.get("/v2.0/floatingips?port_id=" + ports[1])
    r.network.get("/v2.0/floatingips?floating_ip_address=" + first["floating_ip_address"])
    r.network.get("/v2.0/floatingips?floating_ip_address=203.0.113.250")
    r.network.get("/v2.0/floatingips/" + first["id"])
    make(port_id=ports[0], description="record")
    second = make(subnet_id=r.ids["external_subnet"])["floatingip"]
    r.network.get("/v2.0/floatingips?limit=1")
    move(second["id"], ports[0])
    move(second["id"], ports[1])
    move(second["id"], ports[1])
    move(second["id"], None)
    move(second["id"], MISSING)
    r.network.put("/v2.0/floatingips/" + second["id"], {"floatingip": {"description": "other"}})
    make(floating_ip_address="203.0.113.200")
    make(floating_ip_address=first["floating_ip_address"])
    make(subnet_id=r.ids["subnet"])
    make(subnet_id=MISSING)
    make(port_id=MISSING)
    make(floating_network_id=MISSING)
    make(floating_network_id=r.ids["network"])
    make(floating_ip_address="nonsense")
    move(MISSING, None)
    for id in (first["id"], second["id"], second["id"]):
        r.network.delete("/v2.0/floatingips/" + id)
    for port in ports:
        r.network.delete("/v2.0/ports/" + port)


def shortages(r):
    """Neutron's errors when a quota or an allocation pool is exhausted."""
    quota = "/v2.0/quotas/" + r.ids["project"]
    limit = {"floatingip": 0, "security_group": 0, "security_group_rule": 0, "port": 0}
    r.network.get(quota)
    r.network.get(quota + "/details.json")
    r.admin_network.put(quota, {"quota": limit})
    r.network.get(quota)
    r.network.post("/v2.0/floatingips", {"floatingip": {"floating_network_id": r.ids["external_network"]}})
    r.network.post("/v2.0/security-groups", {"security_group": {"name": "record"}})
    r.network.post("/v2.0/security-group-rules", {"security_group_rule": {
        "security_group_id": r.ids["security_group"], "direction": "ingress", "ethertype": "IPv4",
        "protocol": "tcp", "port_range_min": 30000, "port_range_max": 30000}})
    r.network.post("/v2.0/ports", {"port": {"network_id": r.ids["network"]}})
    r.admin_network.delete(quota)
    small = r.admin_network.post("/v2.0/networks", {"network": {
        "name": "record-small", "router:external": True}})["network"]["id"]
    subnet = r.admin_network.post("/v2.0/subnets", {"subnet": {
        "name": "record-small", "network_id": small, "ip_version": 4, "cidr": "198.51.100.0/30",
        "enable_dhcp": False}})["subnet"]["id"]
    make = lambda **more: r.network.post("/v2.0/floatingips", {"floatingip": {"floating_network_id": small, **more}})
    taken = make()["floatingip"]["id"]
    make()
    make(subnet_id=subnet)
    r.network.delete("/v2.0/floatingips/" + taken)
    r.admin_network.delete("/v2.0/networks/" + small)


def security_groups(r):
    """Security groups and their rules, including the default rules."""
    name = "/v2.0/security-groups?name=record"
    r.network.get(name)
    made = r.network.post("/v2.0/security-groups", {"security_group": {"name": "record", "description": "a group"}})
    group = made["security_group"]["id"]
    r.network.get(name)
    r.network.get("/v2.0/security-groups/" + group)
    r.network.get("/v2.0/security-group-rules?security_group_id=" + group)
    def rule(**more):
        return r.network.post("/v2.0/security-group-rules", {"security_group_rule": {
            "direction": "ingress", "ethertype": "IPv4", "protocol": "tcp", "port_range_min": 30080,
            "port_range_max": 30080, "remote_ip_prefix": "10.10.0.0/24", "security_group_id": group, **more}})
    one = rule()["security_group_rule"]["id"]
    rule()
    rule(protocol="udp")
    rule(protocol="sctp")
    rule(ethertype="IPv6", remote_ip_prefix="2001:db8::/64")
    rule(ethertype="IPv6")
    rule(protocol="nonsense")
    rule(port_range_max=30000)
    rule(remote_ip_prefix="nonsense")
    rule(remote_ip_prefix="10.10.0.7/24")
    rule(security_group_id=MISSING)
    r.network.get("/v2.0/security-group-rules?security_group_id=%s&limit=2" % group)
    r.network.delete("/v2.0/security-group-rules/" + one)
    r.network.delete("/v2.0/security-group-rules/" + one)
    other = r.network.post("/v2.0/security-groups", {"security_group": {"name": "record"}})["security_group"]["id"]
    r.network.get(name)
    r.network.delete("/v2.0/security-groups/" + other)
    port = r.network.post("/v2.0/ports", {"port": {
        "network_id": r.ids["network"], "name": "record", "security_groups": [group]}})["port"]["id"]
    r.network.get("/v2.0/ports?security_groups=" + group)
    r.network.delete("/v2.0/security-groups/" + group)
    r.network.put("/v2.0/ports/" + port, {"port": {"security_groups": []}})
    r.network.delete("/v2.0/security-groups/" + group)
    r.network.delete("/v2.0/security-groups/" + group)
    r.network.delete("/v2.0/ports/" + port)


# --- secrets ------------------------------------------------------------------
def secrets(r):
    """References to certificates: secrets and containers that exist, and that do not."""
    last = lambda answer, key: answer[key].rsplit("/", 1)[1]
    secret = last(r.keymanager.post("/v1/secrets", {
        "name": "record", "payload": base64.b64encode(b"record").decode(),
        "payload_content_type": "application/octet-stream", "payload_content_encoding": "base64"}), "secret_ref")
    container = last(r.keymanager.post("/v1/containers", {
        "name": "record", "type": "generic", "secret_refs": [{
            "name": "record", "secret_ref": r.keymanager.url + "/v1/secrets/" + secret}]}), "container_ref")
    for path in ("/v1/secrets/" + secret, "/v1/containers/" + container, "/v1/secrets/" + MISSING,
                 "/v1/containers/" + MISSING, "/v1/secrets/not-an-id", "/v1/containers/not-an-id"):
        r.keymanager.get(path)
    r.keymanager.delete("/v1/containers/" + container)
    r.keymanager.delete("/v1/secrets/" + secret)


ALL = [tokens, trusts, strangers, servers, life_of_a_server, networks, ports, routes, floating_ips, shortages,
       security_groups, secrets] + balancers.ALL
