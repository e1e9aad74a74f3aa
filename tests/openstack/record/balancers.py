"""Requests to Octavia: one function per recording; its docstring is stored in the file."""

MISSING = "11111111-2222-3333-4444-555555555555"
ROOT = "/v2.0/lbaas/"
MONITOR = {"name": "monitor_0_record", "type": "TCP", "delay": 5, "timeout": 3, "max_retries": 1, "max_retries_down": 3}


def wait_until_settled(r, balancer):
    """Waits until no change is pending, and records the status."""
    path = ROOT + "loadbalancers/" + balancer
    status = lambda answer: answer["loadbalancer"]["provisioning_status"]
    answer = r.until(lambda: r.quiet_loadbalancer.get(path), lambda a: not status(a).startswith("PENDING"))
    r.waited(balancer, status(answer))


def wait_until_deleted(r, balancer):
    r.until(lambda: r.quiet_loadbalancer.get(ROOT + "loadbalancers/" + balancer), lambda a: a.status == 404)
    r.waited(balancer, "GONE")


def delete(r, balancer):
    wait_until_settled(r, balancer)
    r.loadbalancer.delete(ROOT + "loadbalancers/%s?cascade=true" % balancer)
    wait_until_deleted(r, balancer)


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
    """Request body of a load balancer for a Service with two ports."""
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
    """Creates a load balancer without children."""
    made = r.loadbalancer.post(ROOT + "loadbalancers", {"loadbalancer": {
        "name": "record", "vip_subnet_id": r.ids["subnet"], **more}})["loadbalancer"]["id"]
    wait_until_settled(r, made)
    return made


def octavia_versions(r):
    """Versions, providers, flavors, availability zones and quotas of Octavia."""
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
    """A load balancer with all its children in one request: created, read, and deleted with cascade."""
    made = create(r, populated(r))["loadbalancer"]
    path = ROOT + "loadbalancers/" + made["id"]
    r.loadbalancer.get(path)
    r.loadbalancer.get(ROOT + "listeners?loadbalancer_id=" + made["id"])
    wait_until_settled(r, made["id"])
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
    wait_until_deleted(r, made["id"])
    r.loadbalancer.get(path)
    r.loadbalancer.delete(path + "?cascade=true")
    r.loadbalancer.get(ROOT + "listeners?loadbalancer_id=" + made["id"])
    r.loadbalancer.get(ROOT + "pools/%s/members" % pools[0]["id"])
    r.network.get("/v2.0/ports/" + made["vip_port_id"])


def balancer_piece_by_piece(r):
    """Listener, pool, members and health monitor created one after the other, updated, rejected, and deleted one by one."""
    api = r.loadbalancer
    made = create(r, {"name": "record", "vip_subnet_id": r.ids["subnet"], "provider": "amphora",
                      "tags": ["record"]})["loadbalancer"]["id"]
    wait_until_settled(r, made)
    first = api.post(ROOT + "listeners", {"listener": listener(r, 0, 80, loadbalancer_id=made)})["listener"]["id"]
    wait_until_settled(r, made)
    api.post(ROOT + "listeners", {"listener": listener(r, 1, 80, loadbalancer_id=made)})
    api.post(ROOT + "listeners", {"listener": listener(r, 1, 80, "HTTP", loadbalancer_id=made)})
    api.post(ROOT + "listeners", {"listener": listener(r, 1, 81, "NONSENSE", loadbalancer_id=made)})
    api.post(ROOT + "listeners", {"listener": listener(r, 1, 81, loadbalancer_id=MISSING)})
    udp = api.post(ROOT + "listeners", {"listener": listener(r, 1, 80, "UDP", loadbalancer_id=made)})["listener"]["id"]
    wait_until_settled(r, made)
    child = api.post(ROOT + "pools", {"pool": pool(r, 0, listener_id=first)})["pool"]["id"]
    wait_until_settled(r, made)
    api.post(ROOT + "pools", {"pool": pool(r, 0, listener_id=first)})
    api.post(ROOT + "pools", {"pool": pool(r, 0, "UDP", listener_id=first)})
    api.post(ROOT + "pools", {"pool": pool(r, 1, "UDP", listener_id=udp, lb_algorithm="FASTEST")})
    one = api.post(ROOT + "pools/%s/members" % child, {"member": member(r, 1)})["member"]["id"]
    wait_until_settled(r, made)
    api.post(ROOT + "pools/%s/members" % child, {"member": member(r, 1)})
    monitor = api.post(ROOT + "healthmonitors", {"healthmonitor": {**MONITOR, "pool_id": child}})["healthmonitor"]["id"]
    wait_until_settled(r, made)
    api.post(ROOT + "healthmonitors", {"healthmonitor": {**MONITOR, "pool_id": child}})
    api.post(ROOT + "healthmonitors", {"healthmonitor": {**MONITOR, "delay": 0, "pool_id": child}})
    api.put(ROOT + "healthmonitors/" + monitor, {"healthmonitor": {"delay": 6, "name": "monitor_0_other"}})
    wait_until_settled(r, made)
    api.get(ROOT + "healthmonitors/" + monitor)
    api.put(ROOT + "listeners/" + first, {"listener": {"connection_limit": 7, "tags": ["record", "other"]}})
    wait_until_settled(r, made)
    api.put(ROOT + "listeners/" + first, {"listener": {"allowed_cidrs": ["10.0.0.0/8", "192.0.2.0/24"]}})
    wait_until_settled(r, made)
    api.put(ROOT + "listeners/" + first, {"listener": {"insert_headers": {"X-Forwarded-For": "true"}}})
    api.put(ROOT + "listeners/" + first, {"listener": {"allowed_cidrs": ["nonsense"]}})
    api.put(ROOT + "listeners/" + first, {"listener": {"timeout_client_data": -5}})
    api.get(ROOT + "listeners/" + first)
    api.put(ROOT + "pools/" + child, {"pool": {"lb_algorithm": "LEAST_CONNECTIONS"}})
    wait_until_settled(r, made)
    api.put(ROOT + "pools/" + child, {"pool": {"lb_algorithm": "FASTEST"}})
    api.put(ROOT + "pools/" + child, {"pool": {"session_persistence": {"type": "SOURCE_IP"}}})
    wait_until_settled(r, made)
    api.put(ROOT + "pools/" + child, {"pool": {"session_persistence": None}})
    wait_until_settled(r, made)
    api.get(ROOT + "pools/" + child)
    api.delete(ROOT + "pools/%s/members/%s" % (child, one))
    wait_until_settled(r, made)
    api.delete(ROOT + "pools/%s/members/%s" % (child, one))
    api.delete(ROOT + "loadbalancers/" + made)
    for path in ("healthmonitors/" + monitor, "pools/" + child, "listeners/" + first, "listeners/" + udp):
        api.delete(ROOT + path)
        wait_until_settled(r, made)
        api.get(ROOT + path)
        api.delete(ROOT + path)
    api.delete(ROOT + "loadbalancers/" + made)
    wait_until_deleted(r, made)


def members_in_one_request(r):
    """Batch updates of the members of a pool."""
    made = create(r, populated(r, listeners=[listener(r, 0, 80, default_pool=pool(r, 0))]))["loadbalancer"]["id"]
    wait_until_settled(r, made)
    child = r.loadbalancer.get(ROOT + "pools?loadbalancer_id=" + made)["pools"][0]["id"]
    members = ROOT + "pools/%s/members" % child
    def replace(*wanted, **query):
        answer = r.loadbalancer.put(members, {"members": list(wanted)})
        wait_until_settled(r, made)
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
    replace({**member(r, 1), "subnet_id": MISSING})
    replace({"address": "192.0.2.77", "protocol_port": 80})
    replace()
    r.loadbalancer.put(ROOT + "pools/%s/members" % MISSING, {"members": []})
    delete(r, made)


def immutable(r):
    """Every kind of change while the load balancer is PENDING."""
    made = create(r, populated(r))["loadbalancer"]["id"]
    api, path = r.loadbalancer, ROOT + "loadbalancers/" + made
    child = api.get(ROOT + "pools?loadbalancer_id=" + made)["pools"][0]
    first = child["listeners"][0]["id"]
    busy = lambda: r.quiet_loadbalancer.get(path)["loadbalancer"]["provisioning_status"].startswith("PENDING")
    def attempt(method, where, body=None):
        if not busy():
            r.loadbalancer.put(path, {"loadbalancer": {"description": "busy"}})
        api(method, where, body)
    attempt("PUT", path, {"loadbalancer": {"tags": ["other"]}})
    attempt("POST", ROOT + "listeners", {"listener": listener(r, 2, 81, loadbalancer_id=made)})
    attempt("PUT", ROOT + "listeners/" + first, {"listener": {"connection_limit": 7}})
    attempt("DELETE", ROOT + "listeners/" + first)
    attempt("POST", ROOT + "pools", {"pool": pool(r, 2, loadbalancer_id=made)})
    attempt("PUT", ROOT + "pools/" + child["id"], {"pool": {"lb_algorithm": "SOURCE_IP"}})
    attempt("DELETE", ROOT + "pools/" + child["id"])
    attempt("PUT", ROOT + "pools/%s/members" % child["id"], {"members": []})
    attempt("PUT", ROOT + "healthmonitors/" + child["healthmonitor_id"], {"healthmonitor": {"delay": 9}})
    attempt("DELETE", ROOT + "healthmonitors/" + child["healthmonitor_id"])
    attempt("DELETE", path + "?cascade=true")
    delete(r, made)


def tags_of_a_balancer(r):
    """Tags and names of a load balancer, updated and removed in every possible way."""
    made = small(r, tags=["one"])
    path = ROOT + "loadbalancers/" + made
    for change in ({"tags": ["one", "two"]}, {"tags": [""]}, {"tags": []}, {"tags": ["two", "one", "one"]},
                   {"tags": []}, {"name": "record-2", "tags": ["one"]}, {"description": ""}, {"tags": None}):
        r.loadbalancer.put(path, {"loadbalancer": change})
        wait_until_settled(r, made)
        r.loadbalancer.get(path)
    r.loadbalancer.get(ROOT + "loadbalancers?tags=one")
    r.loadbalancer.get(ROOT + "loadbalancers?name=record")
    r.loadbalancer.get(ROOT + "loadbalancers?name=record-2")
    r.loadbalancer.put(ROOT + "loadbalancers/" + MISSING, {"loadbalancer": {"tags": []}})
    delete(r, made)


def balancer_pages(r):
    """Paged lists of load balancers."""
    made = [small(r, name="record-%d" % number) for number in (1, 2, 3)]
    r.loadbalancer.get(ROOT + "loadbalancers")
    r.loadbalancer.get(ROOT + "loadbalancers?limit=2")
    page = r.loadbalancer.get(ROOT + "loadbalancers?limit=1&project_id=" + r.ids["project"])
    while [link for link in page.body.get("loadbalancers_links", []) if link["rel"] == "next"]:
        href = [link["href"] for link in page["loadbalancers_links"] if link["rel"] == "next"][0]
        page = r.loadbalancer.get(href.split(r.loadbalancer.url)[1])
    r.loadbalancer.get(ROOT + "loadbalancers?limit=1000&fields=id&fields=name")
    for each in made:
        delete(r, each)


def balancers_refused(r):
    """Rejected load balancers: invalid references, exhausted subnet, exceeded quota."""
    bare = {"name": "record", "vip_subnet_id": r.ids["subnet"]}
    create(r, {**bare, "provider": "nonsense"})
    create(r, {**bare, "vip_subnet_id": MISSING})
    create(r, {"name": "record", "vip_network_id": MISSING})
    create(r, {"name": "record", "vip_port_id": MISSING})
    create(r, {"name": "record"})
    create(r, {**bare, "nonsense": True})
    create(r, {**bare, "vip_address": "192.0.2.1"})
    create(r, {**bare, "vip_address": r.ids["servers"]["node-1"]["addresses"][0]})
    create(r, {**bare, "flavor_id": MISSING})
    create(r, {**bare, "availability_zone": "nonsense"})
    create(r, {**bare, "listeners": [listener(r, 0, 80), listener(r, 1, 80)]})
    create(r, {**bare, "listeners": [listener(r, 0, 80, default_pool={"protocol": "TCP", "lb_algorithm": "ROUND_ROBIN"})]})
    create(r, {**bare, "listeners": [listener(r, 0, 80, default_pool=pool(r, 0, lb_algorithm="FASTEST"))]})
    create(r, {**bare, "listeners": [listener(r, 0, 80, default_pool=pool(
        r, 0, members=[member(r, 1), member(r, 1)]))]})
    create(r, {**bare, "listeners": [listener(r, 0, 443, "TERMINATED_HTTPS",
                                              default_tls_container_ref=r.keymanager.url + "/v1/secrets/" + MISSING)]})
    narrow = r.network.post("/v2.0/networks", {"network": {"name": "record"}})["network"]["id"]
    subnet = r.network.post("/v2.0/subnets", {"subnet": {
        "network_id": narrow, "ip_version": 4, "cidr": "10.30.0.0/30", "enable_dhcp": False}})["subnet"]["id"]
    port = r.network.post("/v2.0/ports", {"port": {"network_id": narrow}})["port"]["id"]
    create(r, {"name": "record", "vip_subnet_id": subnet})
    r.network.delete("/v2.0/ports/" + port)
    r.network.delete("/v2.0/networks/" + narrow)
    for each in r.loadbalancer.get(ROOT + "loadbalancers?name=record")["loadbalancers"]:
        delete(r, each["id"])


def balancer_quotas(r):
    """Octavia's errors when a quota is exceeded, for each kind of object."""
    quota = ROOT + "quotas/" + r.ids["project"]
    limit = lambda **limits: r.admin_loadbalancer.put(quota, {"quota": limits})
    made = small(r)
    child = r.loadbalancer.post(ROOT + "pools", {"pool": pool(r, 0, loadbalancer_id=made)})["pool"]["id"]
    wait_until_settled(r, made)
    limit(loadbalancer=1, listener=0, pool=1, member=0, healthmonitor=0)
    r.loadbalancer.get(quota)
    create(r, {"name": "record", "vip_subnet_id": r.ids["subnet"]})
    r.loadbalancer.post(ROOT + "listeners", {"listener": listener(r, 0, 80, loadbalancer_id=made)})
    r.loadbalancer.post(ROOT + "pools", {"pool": pool(r, 0, loadbalancer_id=made)})
    r.loadbalancer.post(ROOT + "pools/%s/members" % child, {"member": member(r, 1)})
    r.loadbalancer.put(ROOT + "pools/%s/members" % child, {"members": [member(r, 1)]})
    r.loadbalancer.post(ROOT + "healthmonitors", {"healthmonitor": {**MONITOR, "pool_id": child}})
    limit(loadbalancer=-1)
    create(r, populated(r))
    r.admin_loadbalancer.delete(quota)
    for each in r.loadbalancer.get(ROOT + "loadbalancers")["loadbalancers"]:
        if each["name"] == "record":
            delete(r, each["id"])


def the_same_member_twice(r):
    """A duplicate member in one batch update: the load balancer stays PENDING forever. Must be last, because it leaves that
    load balancer behind."""
    made = small(r, name="record-stuck")
    child = r.loadbalancer.post(ROOT + "pools", {"pool": pool(r, 0, loadbalancer_id=made)})["pool"]["id"]
    wait_until_settled(r, made)
    r.loadbalancer.put(ROOT + "pools/%s/members" % child, {"members": [member(r, 1), member(r, 1)]})
    r.loadbalancer.get(ROOT + "loadbalancers/" + made)
    r.loadbalancer.get(ROOT + "pools/%s/members" % child)


ALL = [octavia_versions, balancer_in_one_request, balancer_piece_by_piece, members_in_one_request, immutable,
       tags_of_a_balancer, balancer_pages, balancers_refused, balancer_quotas,
       the_same_member_twice]
