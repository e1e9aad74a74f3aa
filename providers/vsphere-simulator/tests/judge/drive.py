"""Calls a vCenter with pyvmomi, and checks its behaviour. pyvmomi rejects answers that do not have the types of the API.

    drive.py URL USER PASSWORD

The machines are those of the test that calls this script. Exits with 1 if a check fails.
"""

import base64
import json
import sys
import urllib.error
import urllib.request

from pyVim.connect import Disconnect, SmartConnect
from pyVmomi import SoapStubAdapter, vim, vmodl

URL, USER, PASSWORD = sys.argv[1].rstrip("/"), sys.argv[2], sys.argv[3]
HOST, PORT = URL.split("//")[1].split(":")
PASSED, FAILED = [], []
PC = vmodl.query.PropertyCollector
UUID = "422e4956-ad22-1139-6d72-59cc8f26bc90"


def check(what, expected, action):
    """Compares a result with the expected one. A fault counts as its name, an HTTP error as its status."""
    try:
        got = action()
    except vmodl.MethodFault as fault:
        got = type(fault).__name__.split(".")[-1]
    except urllib.error.HTTPError as error:
        got = error.code
    except Exception as error:  # noqa: BLE001 - every other outcome is a failed check
        got = f"{type(error).__name__}: {error}"
    (PASSED if got == expected else FAILED).append(what)
    if got != expected:
        print(f"FAILED: {what}: expected {expected!r}, got {got!r}")
    return got


def connect(user=USER, password=PASSWORD):
    return SmartConnect(protocol="http", host=HOST, port=int(PORT), user=user, pwd=password)


def stub():
    return SoapStubAdapter(HOST, -int(PORT), path="/sdk", version="vim.version.version9")


def http(path, method="GET", body=None, **headers):
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(URL + path, data, {"Content-Type": "application/json", **headers}, method=method)
    with urllib.request.urlopen(request) as answer:
        text = answer.read().decode()
    return json.loads(text) if text.strip() else None


def rest(path, method="GET", body=None, session=None, **headers):
    if session:
        headers["vmware-api-session-id"] = session
    return http(f"/rest/com/vmware/cis/{path}", method, body, **headers)


def rest_login(password=PASSWORD):
    basic = base64.b64encode(f"{USER}:{password}".encode()).decode()
    return rest("session", "POST", **{"Authorization": f"Basic {basic}"})["value"]


def ids(objects):
    return sorted(o._moId for o in objects)


si = connect()
content = si.content
index, collector = content.searchIndex, content.propertyCollector


def machine(name):
    return http(f"/control/machines/{name}")


def vm(name):
    return vim.VirtualMachine(machine(name)["id"], si._stub)


def view(kinds, root=None):
    return content.viewManager.CreateContainerView(root or content.rootFolder, kinds, True)


DCS = {d.name: d for d in view([vim.Datacenter]).view}


def view_filter(kind, paths, of, all_properties=False):
    return PC.FilterSpec(
        objectSet=[PC.ObjectSpec(obj=of, skip=True, selectSet=[PC.TraversalSpec(type=vim.view.ContainerView, path="view", skip=False)])],
        propSet=[PC.PropertySpec(type=kind, pathSet=paths, all=all_properties)])


def properties(kind, paths, limit=None, root=None):
    """Number of pages, and all objects of a kind."""
    spec, options = view_filter(kind, paths, view([kind], root)), PC.RetrieveOptions(maxObjects=limit)
    result, found, pages = collector.RetrievePropertiesEx([spec], options), [], 0
    while result is not None:
        pages += 1
        found += result.objects
        result = collector.ContinueRetrievePropertiesEx(result.token) if result.token else None
    return pages, found


def read(objects, paths):
    spec = PC.FilterSpec(objectSet=[PC.ObjectSpec(obj=o) for o in objects],
                         propSet=[PC.PropertySpec(type=type(objects[0]), pathSet=paths)])
    result = collector.RetrievePropertiesEx([spec], PC.RetrieveOptions())
    return result.objects if result else []


def values(o):
    return {p.name: p.val for p in o.propSet}


def missing(o):
    return {m.path: type(m.fault).__name__.split(".")[-1] for m in o.missingSet}


def logins():
    check("about: a vCenter", "VirtualCenter", lambda: content.about.apiType)
    check("wrong password", "InvalidLogin", lambda: connect(password="wrong"))
    check("unknown user", "InvalidLogin", lambda: connect(user="unknown"))
    check("empty credentials", "InvalidLogin", lambda: connect(user="", password=""))
    check("a second login in one session", "InvalidLogin", lambda: content.sessionManager.Login(USER, PASSWORD))
    other = connect()
    check("currentSession has the user", USER, lambda: other.content.sessionManager.currentSession.userName)
    check("the session is active", True, lambda: content.sessionManager.SessionIsActive(
        other.content.sessionManager.currentSession.key, USER))
    check("the time is a date", True, lambda: si.CurrentTime().year > 2000)
    ticket = other.content.sessionManager.AcquireCloneTicket()
    clone = vim.ServiceInstance("ServiceInstance", stub())
    check("a clone ticket is a login", USER, lambda: clone.content.sessionManager.CloneSession(ticket).userName)
    check("... and finds machines", vm("vm-1")._moId, lambda: clone.content.searchIndex.FindByUuid(None, UUID, True)._moId)
    check("... only once", "InvalidLogin", lambda: vim.ServiceInstance("ServiceInstance", stub()).content.sessionManager.CloneSession(ticket))
    Disconnect(other)
    other = vim.ServiceInstance("ServiceInstance", stub())
    check("without a session: search", "NotAuthenticated", lambda: other.content.searchIndex.FindByUuid(None, UUID, True))
    check("without a session: view", "NotAuthenticated", lambda: other.content.viewManager.CreateContainerView(content.rootFolder, [], True))
    spec = lambda o, path: PC.FilterSpec(objectSet=[PC.ObjectSpec(obj=o)], propSet=[PC.PropertySpec(type=type(o), pathSet=[path])])  # noqa: E731
    retrieve = lambda o, path: other.content.propertyCollector.RetrievePropertiesEx([spec(o, path)], PC.RetrieveOptions()).objects[0]  # noqa: E731
    check("without a session: properties are missing", {"name": "NotAuthenticated"}, lambda: missing(retrieve(vm("vm-1"), "name")))
    check("without a session: currentSession is unset", ({}, {}), lambda: (
        lambda o: (values(o), missing(o)))(retrieve(content.sessionManager, "currentSession")))
    check("the session manager needs its token", 401, lambda: http("/session-manager"))


def search():
    find = lambda uuid, dc=None, instance=False: (lambda r: r and r._moId)(index.FindByUuid(dc, uuid, True, instance))  # noqa: E731
    first = vm("vm-1")._moId
    check("by UUID", first, lambda: find(UUID))
    check("by UUID in upper case", first, lambda: find(UUID.upper()))
    check("by instance UUID", first, lambda: find(machine("vm-1")["instanceUuid"], None, True))
    check("by instance UUID as UUID", None, lambda: find(machine("vm-1")["instanceUuid"]))
    check("by UUID in its datacenter", first, lambda: find(UUID, DCS["DC0"]))
    check("by UUID in the other datacenter", None, lambda: find(UUID, DCS["DC1"]))
    check("by UUID in a datacenter in a folder", vm("vm-5")._moId, lambda: find(machine("vm-5")["uuid"], DCS["DC1"]))
    check("by the other byte order", None, lambda: find("56492e42-22ad-3911-6d72-59cc8f26bc90"))
    check("by no UUID", None, lambda: find(""))
    check("in an unknown datacenter", "ManagedObjectNotFound", lambda: find(UUID, vim.Datacenter("datacenter-999", si._stub)))
    names = lambda name, dc=None: ids(index.FindAllByDnsName(dc, name, True))  # noqa: E731
    check("by DNS name", [first], lambda: names("node-1", DCS["DC0"]))
    check("by DNS name in the other datacenter", [], lambda: names("node-1", DCS["DC1"]))
    check("by DNS name in another case", [vm("vm-7")._moId], lambda: names("node-7"))
    check("by the first label of a DNS name", [], lambda: names("node-5"))
    check("two machines with one name", 2, lambda: len(names("twin")))
    check("by no DNS name", [], lambda: names(""))
    ip = lambda a, dc=None: (lambda r: r and r._moId)(index.FindByIp(dc, a, True))  # noqa: E731
    check("by IP", first, lambda: ip("10.10.1.11"))
    check("by an IP of the second card", first, lambda: ip("172.15.108.11"))
    check("by IPv6 in another notation", first, lambda: ip("fd00:cccc:0:0::11"))
    check("by an unknown IP", None, lambda: ip("10.99.99.99"))
    check("hosts are not searched", "NotSupported", lambda: index.FindByUuid(None, UUID, False))
    http("/control/machines/late", "POST", {"hostName": "late", "uuid": "4237a111-0001-4000-8000-00000000000a", "indexed": False})
    check("a machine that the index does not have yet", (None, "late"), lambda: (find(machine("late")["uuid"]), vm("late").guest.hostName))
    http("/control/machines/late", "PATCH", {"indexed": True})
    check("... and then", vm("late")._moId, lambda: find(machine("late")["uuid"]))
    check("a deleted machine", (True, None), lambda: (http("/control/machines/late", "DELETE"), find("4237a111-0001-4000-8000-00000000000a")))


def reading():
    first = vm("vm-1")
    summary = lambda c: (c.uuid, c.numCpu, c.memorySizeMB, c.guestId, c.template)  # noqa: E731
    check("summary.config", (UUID, 2, 2048, "ubuntu64Guest", False), lambda: summary(first.summary.config))
    check("whole config", (UUID, "efi", 2048), lambda: (first.config.uuid, first.config.firmware, first.config.hardware.memoryMB))
    check("guest", ("node-1", ["internal_net", "external_net"]), lambda: (first.guest.hostName, [n.network for n in first.guest.net]))
    check("addresses in order", ["10.10.1.11", "fd00:cccc::11", "fe80::250:56ff:fe00:1"], lambda: list(first.guest.net[0].ipAddress))
    check("a device that is no network card", [-1, 4000], lambda: [n.deviceConfigId for n in vm("vm-2").guest.net])
    check("a machine that is off", ("poweredOff", None, []), lambda: (
        lambda v: (v.runtime.powerState, v.guest.hostName, list(v.guest.net)))(vm("vm-4")))
    check("a suspended machine", "suspended", lambda: vm("vm-6").summary.runtime.powerState)
    check("a template", (True, None), lambda: (lambda v: (v.config.template, v.resourcePool))(vm("template")))
    check("an inaccessible machine has no configuration", ("inaccessible", None, None), lambda: (
        lambda v: (v.runtime.connectionState, v.config, v.summary.config.uuid))(vm("lost")))
    check("an unknown machine", "ManagedObjectNotFound", lambda: vim.VirtualMachine("vm-99999", si._stub).name)
    check("an unknown machine in a filter", "ManagedObjectNotFound", lambda: read([first, vim.VirtualMachine("vm-99999", si._stub)], ["name"]))
    check("an unknown property", "InvalidProperty", lambda: read([first], ["colour"]))
    check("an unknown nested property", "InvalidProperty", lambda: read([first], ["summary.config.colour"]))
    check("a path through a list", "InvalidProperty", lambda: read([first], ["guest.net.network"]))
    check("an unset property is left out", ({}, {}), lambda: (lambda o: (values(o), missing(o)))(read([first], ["parentVApp"])[0]))
    keyed = 'config.extraConfig["guestinfo.metadata"]'
    check("keyed path", {keyed: "bWV0YQ=="}, lambda: {k: v.value for k, v in values(read([vm("vm-3")], [keyed])[0]).items()})
    check("keyed path to a member", ["bWV0YQ=="], lambda: list(values(read([vm("vm-3")], [keyed + ".value"])[0]).values()))
    check("keyed path to an unknown key", {}, lambda: values(read([first], [keyed])[0]))
    check("whole extraConfig", ["guestinfo.metadata", "guestinfo.metadata.encoding"], lambda: [o.key for o in vm("vm-3").config.extraConfig])
    everything = lambda: {p.name for o in collector.RetrieveProperties([PC.FilterSpec(  # noqa: E731
        objectSet=[PC.ObjectSpec(obj=first)], propSet=[PC.PropertySpec(type=vim.VirtualMachine, all=True)])]) for p in o.propSet}
    check("all properties", True, lambda: {"name", "config", "summary", "guest", "runtime", "parent", "resourcePool"} <= everything())
    http("/control/machines/vm-2", "PATCH", {"access": "noRead"})
    check("a machine without permission", ({}, {"name": "NoPermission"}), lambda: (lambda o: (values(o), missing(o)))(read([vm("vm-2")], ["name"])[0]))
    check("... is found", vm("vm-2")._moId, lambda: index.FindByUuid(None, machine("vm-2")["uuid"], True)._moId)
    http("/control/machines/vm-2", "PATCH", {"access": "full"})
    http("/control/machines/vm-2", "PATCH", {"access": "noView"})
    check("a machine that cannot be seen", ({"name": "NoPermission"}, None, False), lambda: (
        missing(read([vm("vm-2")], ["name"])[0]), index.FindByUuid(None, machine("vm-2")["uuid"], True),
        vm("vm-2")._moId in ids(view([vim.VirtualMachine]).view)))
    http("/control/machines/vm-2", "PATCH", {"access": "full"})
    http("/control/machines/vm-2", "PATCH", {"power": "poweredOff"})
    check("a changed power state", "poweredOff", lambda: vm("vm-2").summary.runtime.powerState)
    http("/control/machines/vm-2", "PATCH", {"power": "poweredOn"})


def pages():
    machines = {m: machine(m)["id"] for m in ["vm-1", "vm-2", "vm-3", "vm-4", "vm-5", "vm-6", "vm-7", "vm-8", "template", "lost"]}
    count, found = properties(vim.VirtualMachine, ["name"])
    check("all machines on one page", (1, sorted(machines.values())), lambda: (count, ids(o.obj for o in found)))
    check("pages of three", (4, sorted(machines.values())), lambda: (lambda r: (r[0], ids(o.obj for o in r[1])))(properties(vim.VirtualMachine, ["name"], 3)))
    check("machines below a datacenter", 4, lambda: len([o for o in properties(vim.VirtualMachine, ["name"], None, DCS["DC1"])[1]]))
    check("machines below a cluster", ["vm-1", "vm-2", "vm-8"], lambda: sorted(
        values(o)["name"] for o in properties(vim.VirtualMachine, ["name"], None, vm("vm-1").summary.runtime.host.parent)[1] if "vm" in values(o)["name"]))
    check("an invalid token", "InvalidArgument", lambda: collector.ContinueRetrievePropertiesEx("invalid"))
    spec = lambda: [view_filter(vim.VirtualMachine, ["name"], view([vim.VirtualMachine]))]  # noqa: E731
    token = collector.RetrievePropertiesEx(spec(), PC.RetrieveOptions(maxObjects=1)).token
    check("a token of another session", "InvalidArgument", lambda: connect().content.propertyCollector.ContinueRetrievePropertiesEx(token))
    check("cancelled pages", "InvalidArgument", lambda: (collector.CancelRetrievePropertiesEx(token), collector.ContinueRetrievePropertiesEx(token)))
    check("RetrieveProperties has no pages", len(machines), lambda: len(collector.RetrieveProperties(spec())))
    check("no objects, no result", None, lambda: collector.RetrievePropertiesEx([view_filter(vim.Datastore, [], view([vim.Datastore]))], PC.RetrieveOptions()))
    gone = view([vim.VirtualMachine])
    gone.DestroyView()
    check("a destroyed view", "ManagedObjectNotFound", lambda: collector.RetrieveProperties([view_filter(vim.VirtualMachine, ["name"], gone)]))
    foreign = connect().content.viewManager.CreateContainerView(content.rootFolder, [], True)
    check("a view of another session", "ManagedObjectNotFound", lambda: collector.RetrieveProperties(
        [view_filter(vim.VirtualMachine, ["name"], vim.view.ContainerView(foreign._moId, si._stub))]))


def traversals():
    up = PC.TraversalSpec(name="up", type=vim.ManagedEntity, path="parent", skip=False, selectSet=[PC.SelectionSpec(name="up"), PC.SelectionSpec(name="vapp")])
    vapp = PC.TraversalSpec(name="vapp", type=vim.VirtualMachine, path="parentVApp", skip=False, selectSet=[PC.SelectionSpec(name="up")])

    def chain(start):
        spec = PC.FilterSpec(objectSet=[PC.ObjectSpec(obj=start, selectSet=[up, vapp])], propSet=[PC.PropertySpec(type=vim.ManagedEntity, pathSet=["name"])])
        return [values(o)["name"] for o in collector.RetrieveProperties([spec])]

    check("from a host to the root", ["DC0_C0_H0", "DC0_C0", "host", "DC0", "Datacenters"], lambda: chain(vm("vm-1").runtime.host))
    check("from a pool to the root", ["Resources", "DC0_C0", "host", "DC0", "Datacenters"], lambda: chain(vm("vm-1").resourcePool))
    check("from a machine to the root", ["vm-5", "nodes", "vm", "DC1", "F0", "Datacenters"], lambda: chain(vm("vm-5")))
    check("from a machine in a vApp", ["vm-8", "app", "Resources"], lambda: chain(vm("vm-8"))[:3])
    down = PC.TraversalSpec(name="down", type=vim.Folder, path="childEntity", skip=False, selectSet=[PC.SelectionSpec(name="down")])
    spec = PC.FilterSpec(objectSet=[PC.ObjectSpec(obj=content.rootFolder, skip=True, selectSet=[down])],
                         propSet=[PC.PropertySpec(type=vim.Datacenter, pathSet=["name", "parent"])])
    check("datacenters in folders", {"DC0": "Datacenters", "DC1": "F0"}, lambda: {
        values(o)["name"]: values(o)["parent"].name for o in collector.RetrieveProperties([spec])})
    check("children of a cluster", (["DC0_C0_H0", "DC0_C0_H1"], "Resources"), lambda: (
        lambda c: ([h.name for h in c.host], c.resourcePool.name))(vm("vm-1").runtime.host.parent))
    privileges = content.authorizationManager.HasPrivilegeOnEntities([content.rootFolder], content.sessionManager.currentSession.key, ["System.Read", "System.View"])
    check("privileges", [("System.Read", True), ("System.View", True)], lambda: [(p.privId, p.isGranted) for p in privileges[0].privAvailability])


def tagging():
    check("REST: wrong password", 401, lambda: rest_login("wrong"))
    check("REST: no session", 401, lambda: rest("tagging/category"))
    session = rest_login()
    host, cluster = vm("vm-1").runtime.host, vm("vm-1").runtime.host.parent
    tag = {k: http("/control/tags", "POST", {"category": k, "name": n, "object": o}) for k, n, o in [
        ("k8s-zone", "zone-a", f"ClusterComputeResource:{cluster._moId}"), ("k8s-region", "region-1", f"Datacenter:{DCS['DC0']._moId}")]}
    check("REST: categories", {"k8s-region", "k8s-zone"}, lambda: {
        rest(f"tagging/category/id:{c}", session=session)["value"]["name"] for c in rest("tagging/category", session=session)["value"]})
    check("REST: tags", sorted(tag.values()), lambda: sorted(rest("tagging/tag", session=session)["value"]))
    listed = lambda kind, o: rest("tagging/tag-association?~action=list-attached-tags", "POST", {"object_id": {"type": kind, "id": o}}, session)["value"]  # noqa: E731
    check("REST: tags of a cluster", [tag["k8s-zone"]], lambda: listed("ClusterComputeResource", cluster._moId))
    check("REST: tags of a host", [], lambda: listed("HostSystem", host._moId))
    objects = [{"type": "HostSystem", "id": host._moId}, {"type": "ClusterComputeResource", "id": cluster._moId}]
    check("REST: tags of several objects", {host._moId: [], cluster._moId: [tag["k8s-zone"]]}, lambda: {
        e["object_id"]["id"]: e["tag_ids"] for e in rest("tagging/tag-association?~action=list-attached-tags-on-objects", "POST", {"object_ids": objects}, session)["value"]})
    check("REST: a tag", "zone-a", lambda: rest(f"tagging/tag/id:{tag['k8s-zone']}", session=session)["value"]["name"])
    category = rest(f"tagging/tag/id:{tag['k8s-zone']}", session=session)["value"]["category_id"]
    check("REST: tags of a category", [tag["k8s-zone"]], lambda: rest(f"tagging/tag/id:{category}?~action=list-tags-for-category", "POST", None, session)["value"])
    check("REST: an unknown tag", 404, lambda: rest("tagging/tag/id:urn:vmomi:InventoryServiceTag:unknown:GLOBAL", session=session))
    cookie = si._stub.cookie.split('"')[1]
    check("REST: the session of SOAP", 2, lambda: len(rest("tagging/tag", session=cookie)["value"]))
    rest("session", "DELETE", session=session)
    check("REST: after the logout", 401, lambda: rest("tagging/category", session=session))


def ended():
    spec = [view_filter(vim.VirtualMachine, ["name"], view([vim.VirtualMachine]))]
    http("/control/sessions", "PATCH", {"endBefore": "ContinueRetrievePropertiesEx"})
    token = collector.RetrievePropertiesEx(spec, PC.RetrieveOptions(maxObjects=3)).token
    check("a session that ends between two pages", "InvalidArgument", lambda: collector.ContinueRetrievePropertiesEx(token))
    check("an ended session: search", "NotAuthenticated", lambda: index.FindByUuid(None, UUID, True))
    check("an ended session: its view", "ManagedObjectNotFound", lambda: collector.RetrievePropertiesEx(spec, PC.RetrieveOptions()))
    http("/control/sessions", "PATCH", {"limit": 1})
    again = connect()
    check("the session limit", True, lambda: "503" in check_error(connect))
    check("a new session", UUID, lambda: again.content.searchIndex.FindByUuid(None, UUID, True).config.uuid)
    Disconnect(again)


def check_error(action):
    try:
        action()
    except Exception as error:  # noqa: BLE001 - its text is the result
        return str(error)
    return ""


for part in (logins, search, reading, pages, traversals, tagging, ended):
    try:
        part()
    except Exception as error:  # noqa: BLE001 - the other parts still run
        FAILED.append(part.__name__)
        print(f"FAILED: {part.__name__} stopped: {type(error).__name__}: {error}")
print(f"{len(PASSED)} checks passed, {len(FAILED)} failed")
sys.exit(bool(FAILED))
