"""Checks that the vCenters behave as a cloud provider needs. Prints N/N at the end.

The SOAP calls are those of pyVmomi, VMware's own Python library; tagging uses plain
HTTPS. At the end the first vCenter is reset, so verify can run any number of times.
"""

import base64
import hashlib
import json
import ssl
import sys
import threading
import time
import urllib.error
import urllib.request

from pyVim.connect import Disconnect, SmartConnect
from pyVmomi import SoapStubAdapter, vim, vmodl

OUT = sys.argv[1]
ONE, TWO = (json.load(open(f"{OUT}/vcenter-{n}.json")) for n in (1, 2))
USER, PASSWORD, BASE, CONTROL, HOST, PORT = (ONE[k] for k in ("user", "password", "url", "control", "host", "port"))
IDS = ONE["machines"]
NODE1, NODE2, NODE3, OFF, NODE5 = (IDS[n] for n in (
    "DC0_C0_RP0_VM0", "DC0_C0_RP0_VM1", "DC0_C1_RP0_VM0", "DC0_C1_RP0_VM1", "DC1_C0_RP0_VM0"))
TRUST = ssl.create_default_context(cafile=f"{OUT}/ca.pem")
PASSED, FAILED = [], []


def check(what, expected, action):
    """The result must equal what is expected; a fault counts as its name."""
    try:
        got = action()
    except vmodl.MethodFault as e:
        got = type(e).__name__.split(".")[-1]
    except urllib.error.HTTPError as e:
        got = e.code
    except Exception as e:  # noqa: BLE001 - anything else is a finding
        got = f"{type(e).__name__}: {e}"
    good = expected(got) if callable(expected) else got == expected
    (PASSED if good else FAILED).append(what)
    wanted = "as described" if callable(expected) else repr(expected)
    print(f"ok    {what}" if good else f"FAIL  {what}: wanted {wanted}, got {str(got)[:300]!r}", flush=True)
    return got


def connect(user=USER, password=PASSWORD, port=PORT, context=TRUST, **kw):
    return SmartConnect(host=HOST, port=int(port), user=user, pwd=password, sslContext=context, **kw)


def http(url, method="GET", body=None, context=None, **headers):
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(url, data, method=method, headers={"Content-Type": "application/json", **headers})
    with urllib.request.urlopen(request, context=context) as answer:
        text = answer.read().decode()
    return json.loads(text) if text.strip() else None


def control(path, method="GET", body=None):
    return http(f"{CONTROL}/{path}", method, body)


def rest(path, method="GET", body=None, session=None, **headers):
    if session:
        headers["vmware-api-session-id"] = session
    return http(f"{BASE}/rest/com/vmware/cis/{path}", method, body, TRUST, **headers)


def rest_login(user=USER, password=PASSWORD):
    basic = base64.b64encode(f"{user}:{password}".encode()).decode()
    return rest("session", "POST", **{"Authorization": f"Basic {basic}"})["value"]


def up(o):
    """The object above, None at the top."""
    return None if o._moId == content.rootFolder._moId else o.parent


def finished(task):
    """The result of a task, once it has one."""
    for _ in range(100):
        if task.info.state in ("success", "error"):
            break
        time.sleep(0.1)
    return task.info.result


def ids(objects):
    return sorted(o._moId for o in objects)


si = connect()
content = si.content
index = content.searchIndex
DCS = {d.name: d for d in content.viewManager.CreateContainerView(content.rootFolder, [vim.Datacenter], True).view}


def properties(kind, paths, limit=None, root=None, content=content):
    """All objects of a kind, page by page: (number of pages, objects)."""
    view = content.viewManager.CreateContainerView(root or content.rootFolder, [kind], True)
    pc = vmodl.query.PropertyCollector
    spec = pc.FilterSpec(
        objectSet=[pc.ObjectSpec(obj=view, skip=True, selectSet=[pc.TraversalSpec(type=vim.view.ContainerView, path="view", skip=False)])],
        propSet=[pc.PropertySpec(type=kind, pathSet=paths)])
    options = pc.RetrieveOptions()
    if limit:
        options.maxObjects = limit
    result, found, pages = content.propertyCollector.RetrievePropertiesEx([spec], options), [], 0
    while result is not None:
        pages += 1
        found += result.objects
        result = content.propertyCollector.ContinueRetrievePropertiesEx(result.token) if result.token else None
    return pages, found


def login():
    check("about: a vCenter", "VirtualCenter", lambda: content.about.apiType)
    check("wrong password", "InvalidLogin", lambda: connect(password="nonsense"))
    check("unknown user", "InvalidLogin", lambda: connect(user="nobody"))
    check("empty credentials", "InvalidLogin", lambda: connect(user="", password=""))
    check("the certificate is not trusted by the system", lambda v: "CERTIFICATE_VERIFY_FAILED" in str(v),
          lambda: connect(context=ssl.create_default_context()))
    der = ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((HOST, int(PORT))))
    colons = lambda h: ":".join(h[i:i + 2] for i in range(0, len(h), 2)).upper()  # noqa: E731
    check("SHA-1 thumbprint as written", ONE["sha1"], lambda: colons(hashlib.sha1(der).hexdigest()))
    check("SHA-256 thumbprint as written", ONE["sha256"], lambda: colons(hashlib.sha256(der).hexdigest()))
    check("pyvmomi accepts the thumbprint", "VirtualCenter", lambda: connect(
        context=ssl._create_unverified_context(), thumbprint=ONE["sha1"]).content.about.apiType)
    check("the second vCenter is another one", True, lambda: connect(port=TWO["port"])
          .content.searchIndex.FindByUuid(None, NODE1["uuid"], True, False) is None)


def sessions():
    before = control("sessions")["soap"]
    extra = connect()
    check("a login is a session", before + 1, lambda: control("sessions")["soap"])
    check("currentSession names the user", USER, lambda: extra.content.sessionManager.currentSession.userName)
    Disconnect(extra)
    check("a logout ends it", before, lambda: control("sessions")["soap"])
    lost = connect()
    lost._stub.cookie, good = 'vmware_soap_session="ended"', lost._stub.cookie
    check("an ended session: search", "NotAuthenticated", lambda: lost.content.searchIndex.FindByUuid(None, NODE1["uuid"], True, False))
    pc = vmodl.query.PropertyCollector
    ask = pc.FilterSpec(objectSet=[pc.ObjectSpec(obj=lost.content.sessionManager)],
                        propSet=[pc.PropertySpec(type=vim.SessionManager, pathSet=["currentSession"])])
    check("an ended session: currentSession is empty", [], lambda: list(
        lost.content.propertyCollector.RetrievePropertiesEx([ask], pc.RetrieveOptions()).objects[0].propSet))
    lost._stub.cookie = good
    ticket = lost.content.sessionManager.AcquireCloneTicket()
    stub = SoapStubAdapter(HOST, int(PORT), path="/sdk", sslContext=TRUST, version="vim.version.version9")
    other = vim.ServiceInstance("ServiceInstance", stub)
    check("a clone ticket is a login", USER, lambda: other.content.sessionManager.CloneSession(ticket).userName)
    check("... only once", "InvalidLogin", lambda: vim.ServiceInstance("ServiceInstance", SoapStubAdapter(
        HOST, int(PORT), path="/sdk", sslContext=TRUST, version="vim.version.version9")).content.sessionManager.CloneSession(ticket))
    check("the session service wants its token", 401, lambda: http(f"{CONTROL}/session-manager"))
    check("the session service sells a ticket", True, lambda: len(http(f"{CONTROL}/session-manager", **{"Authorization": f"Bearer {PASSWORD}"})["token"]) > 10)
    shared = lost._stub.cookie.split("=")[1].split(";")[0].strip('"')
    check("REST accepts the ID of a SOAP session", 3, lambda: len(rest("tagging/category", session=shared)["value"]))
    Disconnect(lost)
    check("... until it ends", 401, lambda: rest("tagging/category", session=shared))


def search():
    find = lambda uuid, dc=None: (lambda r: r and r._moId)(index.FindByUuid(dc, uuid, True, False))  # noqa: E731
    check("by UUID", NODE1["moref"], lambda: find(NODE1["uuid"]))
    check("by UUID, upper case", NODE1["moref"], lambda: find(NODE1["uuid"].upper()))
    check("by UUID in its datacenter", NODE1["moref"], lambda: find(NODE1["uuid"], DCS["DC0"]))
    check("by UUID in the other datacenter", None, lambda: find(NODE1["uuid"], DCS["DC1"]))
    check("by UUID below a folder", NODE5["moref"], lambda: find(NODE5["uuid"], DCS["DC1"]))
    check("the guest's byte order is another UUID", None, lambda: find(NODE1["systemUUID"]))
    check("... and swapping it back finds the machine", ("56492e42-22ad-3911-6d72-59cc8f26bc90", NODE1["moref"]), lambda: (NODE1["systemUUID"], find(NODE1["uuid"])))
    check("all by UUID", [NODE1["moref"]], lambda: ids(index.FindAllByUuid(None, NODE1["uuid"], True, False)))
    check("unknown UUID", None, lambda: find("00000000-0000-0000-0000-000000000000"))
    check("empty UUID", None, lambda: find(""))
    check("a datacenter that is not there", "ManagedObjectNotFound", lambda: find(NODE1["uuid"], vim.Datacenter("datacenter-999", si._stub)))
    names = lambda name, dc=None: ids(index.FindAllByDnsName(dc, name, True))  # noqa: E731
    check("by DNS name", [NODE1["moref"]], lambda: names("node-1", DCS["DC0"]))
    check("by DNS name in the other datacenter", [], lambda: names("node-1", DCS["DC1"]))
    check("by DNS name, other case", [IDS["DC1_C1_RP0_VM0"]["moref"]], lambda: names("node-7"))
    check("by a short name when the guest has a long one", [], lambda: names("node-5"))
    check("two machines of one name", 2, lambda: len(names("twin", DCS["DC1"])))
    check("no machine of an empty name", [], lambda: names(""))
    ip = lambda a, dc=None: (lambda r: r and r._moId)(index.FindByIp(dc, a, True))  # noqa: E731
    check("by IP", NODE1["moref"], lambda: ip("10.10.1.11"))
    check("by the second card's IP", NODE1["moref"], lambda: ip("172.15.108.11"))
    check("by IPv6, written otherwise", NODE1["moref"], lambda: ip("fd00:cccc:0:0::11"))
    check("by unknown IP", None, lambda: ip("10.99.99.99"))


def reading():
    vm = vim.VirtualMachine(NODE1["moref"], si._stub)
    check("summary.config", (NODE1["uuid"], 2, 2048, "ubuntu64Guest"), lambda: (
        vm.summary.config.uuid, vm.summary.config.numCpu, vm.summary.config.memorySizeMB, vm.summary.config.guestId))
    check("guest", ("node-1", ["internal_net", "external_net"]), lambda: (vm.guest.hostName, [n.network for n in vm.guest.net]))
    check("addresses in order", ["10.10.1.11", "fd00:cccc::11", "fe80::250:56ff:fe00:1"], lambda: list(vm.guest.net[0].ipAddress))
    check("a device that is no network card", [-1, 4001], lambda: [n.deviceConfigId for n in vim.VirtualMachine(NODE2["moref"], si._stub).guest.net])
    check("power states", ["poweredOff", "poweredOn", "suspended"], lambda: sorted({m["power"] for m in IDS.values()}))
    check("a powered-off machine tells no name and no address", ("", 0), lambda: (lambda g: (g.hostName or "", len(g.net)))(vim.VirtualMachine(OFF["moref"], si._stub).guest))
    check("a machine that is not there", "ManagedObjectNotFound", lambda: vim.VirtualMachine("vm-99999", si._stub).summary.config.uuid)

    pages, found = properties(vim.VirtualMachine, ["summary.config.uuid", "guest.hostName"])
    check("all machines in one page", True, lambda: pages == 1 and {NODE1["moref"], NODE5["moref"]} <= {o.obj._moId for o in found})
    check("pages of three: all machines, none twice", (-(-len(found) // 3), ids(o.obj for o in found)), lambda: (
        lambda r: (r[0], ids(o.obj for o in r[1])))(properties(vim.VirtualMachine, ["name"], 3)))
    check("a made-up page token", "InvalidArgument", lambda: content.propertyCollector.ContinueRetrievePropertiesEx("nonsense"))
    check("machines below one datacenter", 4, lambda: len([m for m in IDS.values() if m["datacenter"] == "DC0"]) and len(
        [o for o in properties(vim.VirtualMachine, ["name"], root=DCS["DC0"])[1] if o.obj._moId in {m["moref"] for m in IDS.values()}]))
    keyed = 'config.extraConfig["guestinfo.metadata"]'
    check("keyed path of an extra setting", True, lambda: any(p.name == keyed and base64.b64decode(p.val.value).startswith(b"instance-id: node-3")
          for o in properties(vim.VirtualMachine, [keyed])[1] if o.obj._moId == NODE3["moref"] for p in o.propSet))
    check("whole extraConfig", True, lambda: "guestinfo.metadata.encoding" in [o.key for o in vim.VirtualMachine(NODE3["moref"], si._stub).config.extraConfig])
    check("an unknown property is reported missing or refused", lambda v: v in ("InvalidProperty", "missing"),
          lambda: "missing" if any(o.missingSet for o in properties(vim.VirtualMachine, ["colour"])[1]) else "silent")

    chain, o = [], vm.summary.runtime.host
    while o is not None:
        chain.append(type(o).__name__.split(".")[-1])
        o = up(o)
    check("host to root", ["HostSystem", "ClusterComputeResource", "Folder", "Datacenter", "Folder"], lambda: chain)
    check("the machine's host is fixed", "DC0_C0_H0", lambda: vm.summary.runtime.host.name)
    check("resource pool and folder", ("Resources", "vm"), lambda: (vm.resourcePool.name, vm.parent.name))
    check("datacenters, one in a folder", {"DC0": "Datacenters", "DC1": "F0"}, lambda: {n: d.parent.name for n, d in DCS.items()})
    check("by inventory path", DCS["DC1"]._moId, lambda: index.FindByInventoryPath("/F0/DC1")._moId)


def updates():
    vm = vim.VirtualMachine(NODE2["moref"], si._stub)
    other = connect()
    pc = vmodl.query.PropertyCollector
    spec = pc.FilterSpec(objectSet=[pc.ObjectSpec(obj=vim.VirtualMachine(NODE2["moref"], other._stub))],
                         propSet=[pc.PropertySpec(type=vim.VirtualMachine, pathSet=["runtime.powerState"])])
    collector = other.content.propertyCollector
    collector.CreateFilter(spec, True)
    first = collector.WaitForUpdatesEx("", pc.WaitOptions(maxWaitSeconds=5))
    check("waiting: the first answer is the present state", "poweredOn", lambda: str(first.filterSet[0].objectSet[0].changeSet[0].val))
    threading.Timer(1, lambda: control(f"machines/{NODE2['name']}", "POST", {"power": "poweredOff"})).start()
    second = collector.WaitForUpdatesEx(first.version, pc.WaitOptions(maxWaitSeconds=20))
    check("waiting: a change arrives", "poweredOff", lambda: str(second.filterSet[0].objectSet[0].changeSet[0].val))
    check("... and reading agrees", "poweredOff", lambda: str(vm.summary.runtime.powerState))
    control(f"machines/{NODE2['name']}", "POST", {"power": "poweredOn"})
    Disconnect(other)
    moved = "42278c9d-79fb-f2af-b060-aaaaaaaaaaaa"
    control(f"machines/{NODE2['name']}", "POST", {"uuid": moved})
    check("a changed UUID is found", NODE2["moref"], lambda: index.FindByUuid(None, moved, True, False)._moId)
    control(f"machines/{NODE2['name']}", "POST", {"uuid": NODE2["uuid"]})


def tagging():
    check("REST: wrong password", 401, lambda: rest_login(password="nonsense"))
    check("REST: no session", 401, lambda: rest("tagging/category"))
    session = rest_login()
    check("REST: categories", {"k8s-region", "k8s-zone", "backup"}, lambda: {
        rest(f"tagging/category/id:{c}", session=session)["value"]["name"] for c in rest("tagging/category", session=session)["value"]})

    def attached(kind, moid):
        out = {}
        for t in rest("tagging/tag-association?~action=list-attached-tags", "POST", {"object_id": {"type": kind, "id": moid}}, session)["value"]:
            tag = rest(f"tagging/tag/id:{t}", session=session)["value"]
            out[rest(f"tagging/category/id:{tag['category_id']}", session=session)["value"]["name"]] = tag["name"]
        return out

    def zone(moref):
        """Zone and region as the three starting points give them."""
        vm = vim.VirtualMachine(moref, si._stub)
        for start in (vm.summary.runtime.host, vm.resourcePool, vm):
            found, o = {}, start
            while o is not None and not {"k8s-zone", "k8s-region"} <= set(found):
                for category, name in attached(type(o).__name__.split(".")[-1], o._moId).items():
                    found.setdefault(category, name)
                o = up(o)
            if {"k8s-zone", "k8s-region"} <= set(found):
                return found["k8s-zone"], found["k8s-region"]
        return None

    check("zone from the cluster, region from the datacenter", ("zone-a", "region-1"), lambda: zone(NODE1["moref"]))
    check("zone from the host", ("zone-b", "region-1"), lambda: zone(NODE3["moref"]))
    check("both from the machine's folder", ("zone-c", "region-2"), lambda: zone(NODE5["moref"]))
    check("both from the resource pool", ("zone-d", "region-2"), lambda: zone(IDS["DC1_C1_RP0_VM0"]["moref"]))
    host = vim.VirtualMachine(NODE3["moref"], si._stub).summary.runtime.host._moId
    objects = [{"type": "HostSystem", "id": host}, {"type": "Datacenter", "id": DCS["DC0"]._moId}, {"type": "Datacenter", "id": DCS["DC1"]._moId}]
    check("REST: several objects in one call", 2, lambda: sum(bool(e["tag_ids"]) for e in rest(
        "tagging/tag-association?~action=list-attached-tags-on-objects", "POST", {"object_ids": objects}, session)["value"]))
    check("REST: an unknown tag", 404, lambda: rest("tagging/tag/id:urn:vmomi:InventoryServiceTag:none:GLOBAL", session=session))
    rest("session", "DELETE", session=session)
    check("REST: the session is over", 401, lambda: rest("tagging/category", session=session))


def faults():
    control("calls", "DELETE")
    control("faults", "POST", [{"method": "FindByUuid", "kind": "NoPermission", "count": 1}])
    check("injected: no permission", "NoPermission", lambda: index.FindByUuid(None, NODE1["uuid"], True, False))
    check("then it works", NODE1["moref"], lambda: index.FindByUuid(None, NODE1["uuid"], True, False)._moId)
    check("both calls are counted", 2, lambda: control("counts")["FindByUuid"])
    control("faults", "POST", [{"method": "FindByUuid", "kind": "http", "status": 503, "count": 1}])
    check("injected: 503", lambda v: "503" in str(v), lambda: index.FindByUuid(None, NODE1["uuid"], True, False))
    control("faults", "POST", [{"method": "FindByUuid", "delayMillis": 1500, "count": 1}])
    began = time.time()
    check("injected: slowness", True, lambda: bool(index.FindByUuid(None, NODE1["uuid"], True, False)) and time.time() - began > 1.4)
    full = control("sessions")["soap"]
    control("sessions", "POST", {"limit": full})
    check("session limit reached", lambda v: "503" in str(v), connect)
    control("sessions", "POST", {"limit": 0})
    session = rest_login()
    control("sessions", "DELETE")
    check("all sessions ended: SOAP", "NotAuthenticated", lambda: index.FindByUuid(None, NODE1["uuid"], True, False))
    check("all sessions ended: REST", 401, lambda: rest("tagging/category", session=session))
    again = connect()
    check("a new login works", NODE1["moref"], lambda: again.content.searchIndex.FindByUuid(None, NODE1["uuid"], True, False)._moId)
    source = vim.VirtualMachine(NODE1["moref"], again._stub)
    task = source.Clone(folder=source.parent, name="verify-clone", spec=vim.vm.CloneSpec(location=vim.vm.RelocateSpec(), powerOn=False, template=False))
    clone = finished(task)
    uuid = clone.config.uuid
    check("a clone has a UUID of its own and is found", (True, clone._moId), lambda: (
        uuid != NODE1["uuid"], again.content.searchIndex.FindByUuid(None, uuid, True, False)._moId))
    finished(clone.Destroy())
    check("a destroyed machine is not found", None, lambda: again.content.searchIndex.FindByUuid(None, uuid, True, False))
    check("... and its reference is dead", "ManagedObjectNotFound", lambda: vim.VirtualMachine(clone._moId, again._stub).name)
    Disconnect(again)


def control_port():
    content = connect().content
    index = content.searchIndex
    dc0 = vim.Datacenter(DCS["DC0"]._moId, content.searchIndex._stub)
    view = content.viewManager.CreateContainerView(content.rootFolder, [vim.VirtualMachine], True)
    before = len(view.view)
    uuid = "4237ffff-0001-4000-8000-000000000001"
    new = {"host": "DC0_C0_H0", "hostName": "new", "uuid": uuid, "cpus": 2, "memoryMB": 1024, "guestId": "ubuntu64Guest",
           "nics": [{"network": "internal_net", "ips": ["10.10.9.9"]}]}
    created = control("machines/new", "POST", new)
    find = lambda: index.FindByUuid(dc0, uuid, True, False)  # noqa: E731
    check("a created machine is found", created["moref"], lambda: find()._moId)
    check("... has what was requested", (2, 1024, "ubuntu64Guest", "new", "poweredOn"), lambda: (lambda vm: (
        vm.summary.config.numCpu, vm.summary.config.memorySizeMB, vm.summary.config.guestId, vm.guest.hostName, vm.runtime.powerState))(find()))
    check("... and is in a view that existed before, once", (before + 1, 1), lambda: (len(view.view), [v._moId for v in view.view].count(created["moref"])))
    control("pages", "POST", {"limit": 2})
    check("a page limit below the client's", True, lambda: properties(vim.VirtualMachine, ["name"], 100, content=content)[0] > 2)
    control("machines/new", "DELETE")
    check("a deleted machine is not found", None, find)
    check("... and not in the view", before, lambda: len(view.view))
    control("faults", "POST", [{"method": "FindBy*", "after": 1, "count": 1, "kind": "lost"}, {"method": "FindBy*", "after": 1, "kind": "drop"}])
    outcome = lambda: "ok" if isinstance(tried(find), type(None)) else "closed"  # noqa: E731
    check("a crash: one call works, then connections are closed", ["ok", "closed", "closed"], lambda: [outcome() for _ in range(3)])
    control("faults", "DELETE")
    control("faults", "POST", [{"method": "*", "kind": "empty"}])
    check("an empty vCenter", (None, []), lambda: (index.FindByUuid(None, NODE1["uuid"], True, False), list(index.FindAllByDnsName(None, "node-1", True))))
    control("faults", "DELETE")
    control("password", "POST", {"password": "other"})
    check("a changed password: the old one is rejected", "InvalidLogin", connect)
    check("... also by REST", 401, rest_login)
    check("... and the new one accepted", "VirtualCenter", lambda: connect(password="other").content.about.apiType)
    control("machines/new", "POST", new)
    control(f"machines/{NODE1['name']}", "POST", {"power": "poweredOff", "hostName": "-", "nics": [], "extraConfig": {"a": "b"}})
    after = control("reset", "POST")
    check("a reset restores the inventory", IDS, lambda: after)
    check("... ends the sessions", "NotAuthenticated", find)
    check("... and deletes faults and journal", (0, []), lambda: (control("counts").get("Login", 0), control("faults")))


def tried(action):
    """None, or the exception."""
    try:
        return action()
    except Exception as e:  # noqa: BLE001 - the kind depends on the library
        return e


for part in (login, sessions, search, reading, updates, tagging, faults, control_port):
    try:
        part()
    except Exception as e:  # noqa: BLE001 - a part that cannot go on is a failure, the others still run
        FAILED.append(part.__name__)
        print(f"FAIL  {part.__name__} stopped: {type(e).__name__}: {e}")
print(f"{len(PASSED)}/{len(PASSED) + len(FAILED)}")
sys.exit(bool(FAILED))
