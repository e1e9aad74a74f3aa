"""What is asked of Octavia."""

NOWHERE = "11111111-2222-3333-4444-555555555555"
ROOT = "/v2.0/lbaas/"
MONITOR = {"name": "monitor_0_record", "type": "TCP", "delay": 5, "timeout": 3, "max_retries": 1, "max_retries_down": 3}


def settled(r, balancer):
    """Waits until nothing is pending, and notes that."""
    path = ROOT + "loadbalancers/" + balancer
    status = lambda answer: answer["loadbalancer"]["provisioning_status"]
    answer = r.until(lambda: r.quiet_loadbalancer.get(path), lambda a: not status(a).startswith("PENDING"))
    r.waited(balancer, status(answer))


def gone(r, balancer):
    r.until(lambda: r.quiet_loadbalancer.get(ROOT + "loadbalancers/" + balancer), lambda a: a.status == 404)
    r.waited(balancer, "GONE")


def removed(r, balancer):
    settled(r, balancer)
    r.loadbalancer.delete(ROOT + "loadbalancers/%s?cascade=true" % balancer)
    gone(r, balancer)


def member(r, number, port=30080):
    address = r.ids["servers"]["node-%d" % number]["addresses"][0]
    return {"name": "node-%d" % number, "address": address, "protocol_port": port, "subnet_id": r.ids["subnet"]}


def listener(r, index, port, protocol="TCP", **more):
    return {"name": "listener_%d_record" % index, "protocol": protocol, "protocol_port": port,
            "connection_limit": -1, "tags": ["record"], "timeout_client_data": 50000,
            "timeout_member_connect": 5000, "timeout_member_data": 50000, "timeout_tcp_inspect": 0,
            "allowed_cidrs": ["0.0.0.0/0"], **more}


def pool(r, index, protocol="TCP", **more):
    return {"name": "pool_%d_record" % index, "protocol": protocol, "lb_algorithm": "ROUND_ROBIN", **more}


def populated(r, **more):
    """The tree of a Service with two ports."""
    return {"name": "record", "description": "a recording", "provider": "amphora", "tags": ["record"],
            "vip_subnet_id": r.ids["subnet"], "listeners": [
                listener(r, 0, 80, default_pool=pool(
                    r, 0, members=[member(r, 1), member(r, 2)], healthmonitor=MONITOR)),
                listener(r, 1, 53, "UDP", default_pool=pool(
                    r, 1, "UDP", session_persistence={"type": "SOURCE_IP"}, members=[member(r, 1, 30053)],
                    healthmonitor={**MONITOR, "name": "monitor_1_record", "type": "UDP-CONNECT"}))],
            **more}


def create(r, balancer):
    return r.loadbalancer.post(ROOT + "loadbalancers", {"loadbalancer": balancer})


def small(r, **more):
    """A balancer with nothing below it."""
    made = r.loadbalancer.post(ROOT + "loadbalancers", {"loadbalancer": {
        "name": "record", "vip_subnet_id": r.ids["subnet"], **more}})["loadbalancer"]["id"]
    settled(r, made)
    return made


def octavia_versions(r):
    """What the load-balancing service says of itself."""
    r.loadbalancer.get("/")
    r.loadbalancer.get("/v2.0/lbaas/providers")
    r.loadbalancer.get("/v2.0/lbaas/flavors")
    r.loadbalancer.get("/v2.0/lbaas/availabilityzones")
    r.loadbalancer.get("/v2.0/lbaas/availabilityzones?name=x")
    r.loadbalancer.get("/v2.0/lbaas/flavors/x")
    r.loadbalancer.get("/v2.0/lbaas/availabilityzones/x")
    r.loadbalancer.get("/v2.0/lbaas/flavors?nope=1")
    r.loadbalancer.get("/v2.0/lbaas/quotas/" + r.ids["project"])
    r.loadbalancer.get("/v2.0/lbaas/quotas/defaults")


def balancer_in_one_request(r):
    """A balancer and all below it in one request, watched until it is there, read, and deleted with all below it."""
    made = create(r, populated(r))["loadbalancer"]
    path = ROOT + "loadbalancers/" + made["id"]
    r.loadbalancer.get(path)
    r.loadbalancer.get(ROOT + "listeners?loadbalancer_id=" + made["id"])
    settled(r, made["id"])
    r.loadbalancer.get(path)
    r.loadbalancer.get(ROOT + "loadbalancers?name=record")
    r.loadbalancer.get(ROOT + "loadbalancers?name=nobody")
    r.loadbalancer.get(ROOT + "listeners?loadbalancer_id=" + made["id"])
    pools = r.loadbalancer.get(ROOT + "pools?loadbalancer_id=" + made["id"])["pools"]
    for each in pools:
        r.loadbalancer.get(ROOT + "pools/%s/members" % each["id"])
        r.loadbalancer.get(ROOT + "healthmonitors/" + each["healthmonitor_id"])
    r.loadbalancer.get(ROOT + "healthmonitors?project_id=" + r.ids["project"])
    r.loadbalancer.get(path + "/status")
    r.network.get("/v2.0/ports/" + made["vip_port_id"])
    r.network.get("/v2.0/floatingips?port_id=" + made["vip_port_id"])
    r.loadbalancer.delete(path)
    r.loadbalancer.delete(path + "?cascade=true")
    r.loadbalancer.get(path)
    r.loadbalancer.get(ROOT + "loadbalancers?name=record")
    gone(r, made["id"])
    r.loadbalancer.get(path)
    r.loadbalancer.delete(path + "?cascade=true")
    r.loadbalancer.get(ROOT + "listeners?loadbalancer_id=" + made["id"])
    r.loadbalancer.get(ROOT + "pools/%s/members" % pools[0]["id"])
    r.network.get("/v2.0/ports/" + made["vip_port_id"])


def balancer_piece_by_piece(r):
    """Listener, pool, members and monitor one after the other, changed, refused, and deleted singly."""
    ask = r.loadbalancer
    made = create(r, {"name": "record", "vip_subnet_id": r.ids["subnet"], "provider": "amphora",
                      "tags": ["record"]})["loadbalancer"]["id"]
    settled(r, made)
    first = ask.post(ROOT + "listeners", {"listener": listener(r, 0, 80, loadbalancer_id=made)})["listener"]["id"]
    settled(r, made)
    ask.post(ROOT + "listeners", {"listener": listener(r, 1, 80, loadbalancer_id=made)})
    ask.post(ROOT + "listeners", {"listener": listener(r, 1, 80, "HTTP", loadbalancer_id=made)})
    ask.post(ROOT + "listeners", {"listener": listener(r, 1, 81, "NONSENSE", loadbalancer_id=made)})
    ask.post(ROOT + "listeners", {"listener": listener(r, 1, 81, loadbalancer_id=NOWHERE)})
    udp = ask.post(ROOT + "listeners", {"listener": listener(r, 1, 80, "UDP", loadbalancer_id=made)})["listener"]["id"]
    settled(r, made)
    below = ask.post(ROOT + "pools", {"pool": pool(r, 0, listener_id=first)})["pool"]["id"]
    settled(r, made)
    ask.post(ROOT + "pools", {"pool": pool(r, 0, listener_id=first)})
    ask.post(ROOT + "pools", {"pool": pool(r, 0, "UDP", listener_id=first)})
    ask.post(ROOT + "pools", {"pool": pool(r, 1, "UDP", listener_id=udp, lb_algorithm="FASTEST")})
    one = ask.post(ROOT + "pools/%s/members" % below, {"member": member(r, 1)})["member"]["id"]
    settled(r, made)
    ask.post(ROOT + "pools/%s/members" % below, {"member": member(r, 1)})
    monitor = ask.post(ROOT + "healthmonitors", {"healthmonitor": {**MONITOR, "pool_id": below}})["healthmonitor"]["id"]
    settled(r, made)
    ask.post(ROOT + "healthmonitors", {"healthmonitor": {**MONITOR, "pool_id": below}})
    ask.post(ROOT + "healthmonitors", {"healthmonitor": {**MONITOR, "delay": 0, "pool_id": below}})
    ask.put(ROOT + "healthmonitors/" + monitor, {"healthmonitor": {"delay": 6, "name": "monitor_0_other"}})
    settled(r, made)
    ask.get(ROOT + "healthmonitors/" + monitor)
    ask.put(ROOT + "listeners/" + first, {"listener": {"connection_limit": 7, "tags": ["record", "other"]}})
    settled(r, made)
    ask.put(ROOT + "listeners/" + first, {"listener": {"allowed_cidrs": ["10.0.0.0/8", "192.0.2.0/24"]}})
    settled(r, made)
    ask.put(ROOT + "listeners/" + first, {"listener": {"insert_headers": {"X-Forwarded-For": "true"}}})
    ask.put(ROOT + "listeners/" + first, {"listener": {"allowed_cidrs": ["nonsense"]}})
    ask.put(ROOT + "listeners/" + first, {"listener": {"timeout_client_data": -5}})
    ask.get(ROOT + "listeners/" + first)
    ask.put(ROOT + "pools/" + below, {"pool": {"lb_algorithm": "LEAST_CONNECTIONS"}})
    settled(r, made)
    ask.put(ROOT + "pools/" + below, {"pool": {"lb_algorithm": "FASTEST"}})
    ask.put(ROOT + "pools/" + below, {"pool": {"session_persistence": {"type": "SOURCE_IP"}}})
    settled(r, made)
    ask.put(ROOT + "pools/" + below, {"pool": {"session_persistence": None}})
    settled(r, made)
    ask.get(ROOT + "pools/" + below)
    ask.delete(ROOT + "pools/%s/members/%s" % (below, one))
    settled(r, made)
    ask.delete(ROOT + "pools/%s/members/%s" % (below, one))
    ask.delete(ROOT + "loadbalancers/" + made)
    for path in ("healthmonitors/" + monitor, "pools/" + below, "listeners/" + first, "listeners/" + udp):
        ask.delete(ROOT + path)
        settled(r, made)
        ask.get(ROOT + path)
        ask.delete(ROOT + path)
    ask.delete(ROOT + "loadbalancers/" + made)
    gone(r, made)


def members_in_one_request(r):
    """The members of a pool replaced as a whole."""
    made = create(r, populated(r, listeners=[listener(r, 0, 80, default_pool=pool(r, 0))]))["loadbalancer"]["id"]
    settled(r, made)
    below = r.loadbalancer.get(ROOT + "pools?loadbalancer_id=" + made)["pools"][0]["id"]
    members = ROOT + "pools/%s/members" % below
    def replace(*wanted, **query):
        answer = r.loadbalancer.put(members, {"members": list(wanted)})
        settled(r, made)
        r.loadbalancer.get(members)
        return answer
    r.loadbalancer.get(members)
    replace(member(r, 1), member(r, 2))
    replace(member(r, 1), member(r, 2))
    replace(member(r, 2), member(r, 3))
    replace({**member(r, 2), "name": "renamed", "monitor_port": 31000}, member(r, 3))
    replace(member(r, 2), member(r, 3))
    replace({**member(r, 1), "address": "nonsense"})
    replace({**member(r, 1), "protocol_port": 0})
    replace({**member(r, 1), "subnet_id": NOWHERE})
    replace({"address": "192.0.2.77", "protocol_port": 80})
    replace()
    r.loadbalancer.put(ROOT + "pools/%s/members" % NOWHERE, {"members": []})
    removed(r, made)


def immutable(r):
    """Every kind of change while the balancer is busy."""
    made = create(r, populated(r))["loadbalancer"]["id"]
    ask, path = r.loadbalancer, ROOT + "loadbalancers/" + made
    below = ask.get(ROOT + "pools?loadbalancer_id=" + made)["pools"][0]
    first = below["listeners"][0]["id"]
    busy = lambda: r.quiet_loadbalancer.get(path)["loadbalancer"]["provisioning_status"].startswith("PENDING")
    def refused(method, where, body=None):
        if not busy():
            r.loadbalancer.put(path, {"loadbalancer": {"description": "busy"}})
        ask(method, where, body)
    refused("PUT", path, {"loadbalancer": {"tags": ["other"]}})
    refused("POST", ROOT + "listeners", {"listener": listener(r, 2, 81, loadbalancer_id=made)})
    refused("PUT", ROOT + "listeners/" + first, {"listener": {"connection_limit": 7}})
    refused("DELETE", ROOT + "listeners/" + first)
    refused("POST", ROOT + "pools", {"pool": pool(r, 2, loadbalancer_id=made)})
    refused("PUT", ROOT + "pools/" + below["id"], {"pool": {"lb_algorithm": "SOURCE_IP"}})
    refused("DELETE", ROOT + "pools/" + below["id"])
    refused("PUT", ROOT + "pools/%s/members" % below["id"], {"members": []})
    refused("PUT", ROOT + "healthmonitors/" + below["healthmonitor_id"], {"healthmonitor": {"delay": 9}})
    refused("DELETE", ROOT + "healthmonitors/" + below["healthmonitor_id"])
    refused("DELETE", path + "?cascade=true")
    removed(r, made)


def tags_of_a_balancer(r):
    """Tags and names of a balancer, changed and taken away in each way there is."""
    made = small(r, tags=["one"])
    path = ROOT + "loadbalancers/" + made
    for change in ({"tags": ["one", "two"]}, {"tags": [""]}, {"tags": []}, {"tags": ["two", "one", "one"]},
                   {"tags": []}, {"name": "record-2", "tags": ["one"]}, {"description": ""}, {"tags": None}):
        r.loadbalancer.put(path, {"loadbalancer": change})
        settled(r, made)
        r.loadbalancer.get(path)
    r.loadbalancer.get(ROOT + "loadbalancers?tags=one")
    r.loadbalancer.get(ROOT + "loadbalancers?name=record")
    r.loadbalancer.get(ROOT + "loadbalancers?name=record-2")
    r.loadbalancer.put(ROOT + "loadbalancers/" + NOWHERE, {"loadbalancer": {"tags": []}})
    removed(r, made)


def balancer_pages(r):
    """Lists of balancers by page."""
    made = [small(r, name="record-%d" % number) for number in (1, 2, 3)]
    r.loadbalancer.get(ROOT + "loadbalancers")
    r.loadbalancer.get(ROOT + "loadbalancers?limit=2")
    page = r.loadbalancer.get(ROOT + "loadbalancers?limit=1&project_id=" + r.ids["project"])
    while [link for link in page.body.get("loadbalancers_links", []) if link["rel"] == "next"]:
        href = [link["href"] for link in page["loadbalancers_links"] if link["rel"] == "next"][0]
        page = r.loadbalancer.get(href.split(r.loadbalancer.url)[1])
    r.loadbalancer.get(ROOT + "loadbalancers?limit=1000&fields=id&fields=name")
    for each in made:
        removed(r, each)


def balancers_refused(r):
    """Balancers that cannot be had: bad references, no room, no quota."""
    bare = {"name": "record", "vip_subnet_id": r.ids["subnet"]}
    create(r, {**bare, "provider": "nonsense"})
    create(r, {**bare, "vip_subnet_id": NOWHERE})
    create(r, {"name": "record", "vip_network_id": NOWHERE})
    create(r, {"name": "record", "vip_port_id": NOWHERE})
    create(r, {"name": "record"})
    create(r, {**bare, "nonsense": True})
    create(r, {**bare, "vip_address": "192.0.2.1"})
    create(r, {**bare, "vip_address": r.ids["servers"]["node-1"]["addresses"][0]})
    create(r, {**bare, "flavor_id": NOWHERE})
    create(r, {**bare, "availability_zone": "nonsense"})
    create(r, {**bare, "listeners": [listener(r, 0, 80), listener(r, 1, 80)]})
    create(r, {**bare, "listeners": [listener(r, 0, 80, default_pool={"protocol": "TCP", "lb_algorithm": "ROUND_ROBIN"})]})
    create(r, {**bare, "listeners": [listener(r, 0, 80, default_pool=pool(r, 0, lb_algorithm="FASTEST"))]})
    create(r, {**bare, "listeners": [listener(r, 0, 80, default_pool=pool(
        r, 0, members=[member(r, 1), member(r, 1)]))]})
    create(r, {**bare, "listeners": [listener(r, 0, 443, "TERMINATED_HTTPS",
                                              default_tls_container_ref=r.keymanager.url + "/v1/secrets/" + NOWHERE)]})
    narrow = r.network.post("/v2.0/networks", {"network": {"name": "record"}})["network"]["id"]
    subnet = r.network.post("/v2.0/subnets", {"subnet": {
        "network_id": narrow, "ip_version": 4, "cidr": "10.30.0.0/30", "enable_dhcp": False}})["subnet"]["id"]
    port = r.network.post("/v2.0/ports", {"port": {"network_id": narrow}})["port"]["id"]
    create(r, {"name": "record", "vip_subnet_id": subnet})
    r.network.delete("/v2.0/ports/" + port)
    r.network.delete("/v2.0/networks/" + narrow)
    for each in r.loadbalancer.get(ROOT + "loadbalancers?name=record")["loadbalancers"]:
        removed(r, each["id"])


def balancer_quotas(r):
    """What Octavia says when a quota is used up, for each kind of object."""
    quota = ROOT + "quotas/" + r.ids["project"]
    limit = lambda **limits: r.admin_loadbalancer.put(quota, {"quota": limits})
    made = small(r)
    below = r.loadbalancer.post(ROOT + "pools", {"pool": pool(r, 0, loadbalancer_id=made)})["pool"]["id"]
    settled(r, made)
    limit(loadbalancer=1, listener=0, pool=1, member=0, healthmonitor=0)
    r.loadbalancer.get(quota)
    create(r, {"name": "record", "vip_subnet_id": r.ids["subnet"]})
    r.loadbalancer.post(ROOT + "listeners", {"listener": listener(r, 0, 80, loadbalancer_id=made)})
    r.loadbalancer.post(ROOT + "pools", {"pool": pool(r, 0, loadbalancer_id=made)})
    r.loadbalancer.post(ROOT + "pools/%s/members" % below, {"member": member(r, 1)})
    r.loadbalancer.put(ROOT + "pools/%s/members" % below, {"members": [member(r, 1)]})
    r.loadbalancer.post(ROOT + "healthmonitors", {"healthmonitor": {**MONITOR, "pool_id": below}})
    limit(loadbalancer=-1)
    create(r, populated(r))
    r.admin_loadbalancer.delete(quota)
    for each in r.loadbalancer.get(ROOT + "loadbalancers")["loadbalancers"]:
        if each["name"] == "record":
            removed(r, each["id"])


def the_same_member_twice(r):
    """One member twice in one request: refused, and the balancer is stuck for ever. Leaves it behind, so it is the last."""
    made = small(r, name="record-stuck")
    below = r.loadbalancer.post(ROOT + "pools", {"pool": pool(r, 0, loadbalancer_id=made)})["pool"]["id"]
    settled(r, made)
    r.loadbalancer.put(ROOT + "pools/%s/members" % below, {"members": [member(r, 1), member(r, 1)]})
    r.loadbalancer.get(ROOT + "loadbalancers/" + made)
    r.loadbalancer.get(ROOT + "pools/%s/members" % below)


ALL = [octavia_versions, balancer_in_one_request, balancer_piece_by_piece, members_in_one_request, immutable,
       tags_of_a_balancer, balancer_pages, balancers_refused, balancer_quotas,
       the_same_member_twice]
