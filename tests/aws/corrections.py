"""Corrections of moto, where a provider would notice that it deviates from AWS.

`before` may reject a request, change it, or return the response. `apply` replaces methods
of moto. README.md lists the corrections; with BOWLINE_MOTO_AS_IS=1 they are not used, and
verify shows each deviation.
"""

import fnmatch
import ipaddress
import random
import re
import time
import uuid

import moto.ec2.responses.instances as instance_responses
import moto.ec2.utils as ec2_utils
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import ec2_backends
from moto.ec2.models.elastic_network_interfaces import NetworkInterface
from moto.ec2.models.instances import Instance
from moto.ec2.models.route_tables import Route
from moto.elb import models as elb
from moto.elb.exceptions import ELBClientError as ClassicError
from moto.elbv2 import models as elbv2
from moto.elbv2.exceptions import ELBClientError as NetworkError

ACCOUNT = "123456789012"
TOPOLOGY_TYPES = re.compile(r"^(hpc|trn|p)[0-9]+[a-z]*(-[a-z0-9]+)?(\.[0-9a-z]*)$")
STATES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}
POLICY_TYPES = {"ProxyProtocolPolicyType", "SSLNegotiationPolicyType", "AppCookieStickinessPolicyType",
                "LBCookieStickinessPolicyType", "BackendServerAuthenticationPolicyType", "PublicKeyPolicyType"}

# Default quotas of an account.
CLASSIC_LIMITS = {"classic-listeners": 100, "classic-load-balancers": 20, "classic-registered-instances": 1000}

# The control port changes the settings.
DEFAULTS = {
    "nlb_provisioning_seconds": 1.0,   # time until a new NLB is active
    "draining_seconds": 5.0,           # time for which a deregistered target is listed
    "nlb_final_state": "active",       # or "failed"
}
settings = dict(DEFAULTS)


class Reject(Exception):
    def __init__(self, code, message, status=400):
        super().__init__(message)
        self.code, self.message, self.status = code, message, status


def cloud(region):
    return ec2_backends[ACCOUNT][region]


def all_instances(region):
    return {i.id: i for r in cloud(region).reservations.values() for i in r.instances}


def set_instance(instance_id, change, region):
    """Control port: sets the state, the addresses or the private DNS name of an instance."""
    instance = all_instances(region)[instance_id]
    if "state" in change:
        instance._state.name, instance._state.code = change["state"], STATES[change["state"]]
    if "nic_status" in change:
        for nic in instance.nics.values():
            nic.status = change["nic_status"]
    nic = instance.nics[0]
    if "ipv6" in change:
        nic.ipv6_addresses = list(change["ipv6"])
    if "ipv4" in change:
        # The addresses need not be in the CIDR of the subnet.
        nic.private_ip_address = change["ipv4"][0]
        nic.private_ip_addresses = [{"Primary": n == 0, "PrivateIpAddress": a} for n, a in enumerate(change["ipv4"])]
    if "private_dns_name" in change:
        instance.chosen_dns_name = change["private_dns_name"]
    return {"id": instance.id, "state": instance._state.name}


# --- requests ----------------------------------------------------------------

def values(params, prefix):
    return [v for k, v in params.items() if re.fullmatch(re.escape(prefix) + r"\.\d+", k)]


def before(api, params, region, filters):
    """May raise Reject, return an XML answer, or change params in place."""
    action = params["Action"]
    if api == "ec2":
        check_filters(params, filters)
        check_page(params)
        if action in ("DescribeInstances", "DescribeInstanceTopology"):
            check_instance_ids(values(params, "InstanceId"), region)
        if action in ("CreateTags", "DeleteTags"):
            check_instance_ids([v for v in values(params, "ResourceId") if v.startswith("i-")], region)
        if action == "DescribeInstanceTopology":
            return topology(params, region)
        if action.endswith(("SecurityGroupIngress", "SecurityGroupEgress")):
            check_permissions(params)
        if action == "DeleteSecurityGroup":
            check_group_unused(params.get("GroupId"), region)
        if action in ("CreateRoute", "DeleteRoute") and "DestinationCidrBlock" in params:
            params["DestinationCidrBlock"] = canonical(params["DestinationCidrBlock"])
    if api == "elb" and action == "DescribeAccountLimits":
        return classic_limits()
    if api == "elb" and action not in ("CreateLoadBalancer", "DeleteLoadBalancer") and "LoadBalancerName" in params \
            and params["LoadBalancerName"] not in elb.elb_backends[ACCOUNT][region].load_balancers:
        raise Reject("LoadBalancerNotFound", f"There is no ACTIVE Load Balancer named '{params['LoadBalancerName']}'")
    return None


def check_filters(params, documented):
    names = [v for k, v in params.items() if re.fullmatch(r"Filter\.\d+\.Name", k)]
    for name in names:
        if documented and name not in documented and not name.startswith("tag:"):
            raise Reject("InvalidParameterValue", f"The filter '{name}' is invalid")
    if sum(bool(re.fullmatch(r"Filter\.\d+\.Value\.\d+", k)) for k in params) > 200:
        raise Reject("FilterLimitExceeded", "The maximum number of filter values specified on a single call is 200")


def check_page(params):
    if "MaxResults" not in params or not params["Action"].startswith("Describe"):
        return
    if params["Action"] in ("DescribeInstances", "DescribeSecurityGroups", "DescribeSubnets", "DescribeRouteTables",
                            "DescribeNetworkInterfaces") and not 5 <= int(params["MaxResults"]) <= 1000:
        raise Reject("InvalidParameterValue", f"Value ( {params['MaxResults']} ) for parameter maxResults is invalid. "
                     "Expecting a value between 5 and 1000.")


def check_instance_ids(ids, region):
    for i in ids:
        if not re.fullmatch(r"i-([0-9a-f]{8}|[0-9a-f]{17})", i):
            raise Reject("InvalidInstanceID.Malformed", f'Invalid id: "{i}"')
    known = all_instances(region)
    missing = [i for i in ids if i not in known]
    if len(missing) == 1:
        raise Reject("InvalidInstanceID.NotFound", f"The instance ID '{missing[0]}' does not exist")
    if missing:
        raise Reject("InvalidInstanceID.NotFound", f"The instance IDs '{', '.join(missing)}' do not exist")


def topology(params, region):
    items = ""
    wanted = values(params, "InstanceId")
    for i in all_instances(region).values():
        if (wanted and i.id not in wanted) or not TOPOLOGY_TYPES.match(i.instance_type) or i.state != "running":
            continue
        nodes = "".join(f"<item>nn-{n}{i.subnet_id[-15:]}</item>" for n in range(1, 4))
        zone = cloud(region).get_subnet(i.subnet_id).availability_zone
        items += (f"<item><instanceId>{i.id}</instanceId><instanceType>{i.instance_type}</instanceType>"
                  f"<networkNodeSet>{nodes}</networkNodeSet><availabilityZone>{zone}</availabilityZone></item>")
    return ('<?xml version="1.0" encoding="UTF-8"?>\n'
            '<DescribeInstanceTopologyResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
            f"<requestId>{uuid.uuid4()}</requestId><instanceSet>{items}</instanceSet></DescribeInstanceTopologyResponse>")


def classic_limits():
    members = "".join(f"<member><Name>{name}</Name><Max>{limit}</Max></member>" for name, limit in CLASSIC_LIMITS.items())
    return ('<DescribeAccountLimitsResponse xmlns="http://elasticloadbalancing.amazonaws.com/doc/2012-06-01/">'
            f"<DescribeAccountLimitsResult><Limits>{members}</Limits></DescribeAccountLimitsResult>"
            f"<ResponseMetadata><RequestId>{uuid.uuid4()}</RequestId></ResponseMetadata></DescribeAccountLimitsResponse>")


def canonical(cidr):
    try:
        return str(ipaddress.ip_network(cidr, strict=False))
    except ValueError:
        raise Reject("InvalidParameterValue", f"CIDR block {cidr} is malformed") from None


def check_permissions(params):
    for k, v in params.items():
        if re.search(r"(^|\.)IpProtocol$", k) and v not in ("tcp", "udp", "icmp", "icmpv6", "-1") \
                and not (v.isdigit() and int(v) < 256):
            raise Reject("InvalidParameterValue", f"Invalid value '{v}' for IP protocol. Unknown protocol.")
        if re.search(r"(^|\.)CidrIp(v6)?$", k):
            params[k] = canonical(v)


def check_group_unused(group_id, region):
    backend = cloud(region)
    used = f"resource {group_id} has a dependent object"
    for groups in backend.groups.values():
        for group in groups.values():
            if group.id == group_id:
                continue
            for rule in list(group.ingress_rules) + list(group.egress_rules):
                if rule.source_group.get("GroupId") == group_id:
                    raise Reject("DependencyViolation", used)
    for nic in backend.enis.values():
        if any(g.id == group_id for g in nic.group_set):
            raise Reject("DependencyViolation", used)
    balancers = list(elb.elb_backends[ACCOUNT][region].load_balancers.values())
    balancers += list(elbv2.elbv2_backends[ACCOUNT][region].load_balancers.values())
    if any(group_id in (lb.security_groups or []) for lb in balancers):
        raise Reject("DependencyViolation", used)


# --- moto's backends ---------------------------------------------------------

def wrap(cls, name):
    """Decorator: replaces cls.name by a function whose first argument is the original."""
    def take(function):
        original = getattr(cls, name)
        setattr(cls, name, lambda self, *a, **k: function(original, self, *a, **k))
        return function
    return take


def subnets_by_id(region, ids, error):
    found = []
    for i in ids:
        try:
            found.append(cloud(region).get_subnet(i))
        except EC2ClientError:
            raise error("SubnetNotFound", f"The subnet ID '{i}' does not exist") from None
    zones = [s.availability_zone for s in found]
    if len(set(zones)) != len(zones):
        raise error("InvalidConfigurationRequest", "A load balancer cannot be attached to multiple subnets in the same Availability Zone")
    return found


def usable(region, instance_id):
    known = all_instances(region)
    return instance_id in known and known[instance_id].state != "terminated"


def apply():
    # The control port may choose another DNS name.
    computed = Instance.private_dns_name
    Instance.private_dns_name = property(lambda self: getattr(self, "chosen_dns_name", None) or computed.fget(self))

    # A route to an instance also names its interface, and becomes a blackhole
    # when the instance is terminated.
    def gone(route):
        return route.instance is not None and route.instance.state == "terminated"

    Route.state = property(lambda self: "blackhole" if gone(self) else "active")
    Route.instance_id = property(lambda self: self.instance.id if self.instance and not gone(self) else None)
    Route.network_interface_id = property(
        lambda self: self.interface.id if self.interface
        else next(iter(self.instance.nics.values())).id if self.instance and not gone(self) else None)

    # Several values of a filter are alternatives, also if a resource has several tags.
    matches = ec2_utils.is_filter_matching

    def is_filter_matching(obj, name, wanted):
        if name in ("tag-key", "tag-value"):
            return any(fnmatch.fnmatchcase(has, one) for has in obj.get_filter_value(name) for one in wanted)
        return matches(obj, name, wanted)

    ec2_utils.is_filter_matching = is_filter_matching

    # A call for IDs has no pages.
    @wrap(instance_responses.InstanceResponse, "_get_param")
    def one_page(original, self, name, *a, **k):
        if name == "MaxResults" and "InstanceId.1" in self.data:
            return 1000
        return original(self, name, *a, **k)

    @wrap(NetworkInterface, "get_filter_value")
    def eni_filter(original, self, filter_name, method_name=None):
        if filter_name == "private-dns-name" and getattr(self, "instance", None):
            return self.instance.private_dns_name if self.instance.private_ip == self.private_ip_address else None
        return original(self, filter_name)

    # --- classic load balancers
    backend = elb.ELBBackend

    def listeners_of(listeners):
        return sorted((int(x.load_balancer_port), int(x.instance_port), x.protocol.upper(), x.ssl_certificate_id or "") for x in listeners)

    def settings_of(lb):
        return lb.scheme, sorted(lb.subnets), sorted(lb.security_groups), listeners_of(lb.listeners)

    @wrap(backend, "create_load_balancer")
    def clb_create(original, self, name, zones, ports, scheme="internet-facing", subnets=None, security_groups=None):
        found = subnets_by_id(self.region_name, subnets or [], ClassicError)
        known = self.load_balancers.get(name)
        if known is not None:
            if settings_of(known) == (scheme or "internet-facing", sorted(subnets or []), sorted(security_groups or []),
                                      listeners_of(elb.FakeListener(p["LoadBalancerPort"], p["InstancePort"], p["Protocol"],
                                                                    p.get("SSLCertificateId")) for p in ports)):
                return known
            raise ClassicError("DuplicateLoadBalancerName", f"Load Balancer named {name} already exists and it is configured with different parameters.")
        lb = original(self, name, zones, ports, scheme, subnets, security_groups)
        inner = "internal-" if lb.scheme == "internal" else ""
        lb.dns_name = f"{inner}{name}-{random.randrange(10**8, 10**10)}.{self.region_name}.elb.amazonaws.com"
        lb.availability_zones = sorted(s.availability_zone for s in found) or zones
        return lb

    @wrap(backend, "delete_load_balancer_listeners")
    def clb_delete_listeners(original, self, name, ports):
        # moto keeps those that it should delete if there are several, and duplicates the others.
        lb = self.get_load_balancer(name)
        if lb is None:
            return original(self, name, ports)
        lb.listeners = [x for x in lb.listeners if int(x.load_balancer_port) not in {int(p) for p in ports}]
        return lb

    @wrap(backend, "attach_load_balancer_to_subnets")
    def clb_attach(original, self, load_balancer_name, subnets):
        lb = self.get_load_balancer(load_balancer_name)
        after = sorted(set(lb.subnets) | set(subnets))
        found = subnets_by_id(self.region_name, after, ClassicError)
        lb.subnets, lb.availability_zones = after, sorted(s.availability_zone for s in found)
        return lb.subnets

    @wrap(backend, "detach_load_balancer_from_subnets")
    def clb_detach(original, self, load_balancer_name, subnets):
        left = original(self, load_balancer_name, subnets)
        self.get_load_balancer(load_balancer_name).availability_zones = sorted(
            s.availability_zone for s in subnets_by_id(self.region_name, left, ClassicError))
        return left

    @wrap(backend, "register_instances")
    def clb_register(original, self, load_balancer_name, instance_ids, from_autoscaling=False):
        instance_ids = list(instance_ids)
        for i in instance_ids:
            if not usable(self.region_name, i):
                raise ClassicError("InvalidInstance", f"Could not find EC2 instance {i}.")
        present = self.get_load_balancer(load_balancer_name).instance_sparse_ids
        return original(self, load_balancer_name, [i for i in dict.fromkeys(instance_ids) if i not in present], from_autoscaling)

    @wrap(backend, "create_load_balancer_policy")
    def clb_policy(original, self, load_balancer_name, policy_name, policy_type_name, policy_attrs):
        if policy_type_name not in POLICY_TYPES:
            raise ClassicError("PolicyTypeNotFound", f"There is no policy type with name {policy_type_name}")
        for p in self.get_load_balancer(load_balancer_name).policies:
            if p.policy_name == policy_name:
                same = [(a.get("AttributeName"), a.get("AttributeValue")) for a in policy_attrs or []] == \
                    [(a.get("AttributeName"), a.get("AttributeValue")) for a in getattr(p, "policy_attribute_descriptions", [])]
                if not same:
                    raise ClassicError("DuplicatePolicyName", f"A policy with the name {policy_name} already exists")
        return original(self, load_balancer_name, policy_name, policy_type_name, policy_attrs)

    def check_policies(lb, names):
        missing = set(names or []) - {p.policy_name for p in lb.policies}
        if missing:
            raise ClassicError("PolicyNotFound", f"There is no policy with name {sorted(missing)[0]}")

    from moto.elb.responses import ELBResponse

    @wrap(ELBResponse, "set_load_balancer_policies_of_listener")
    def clb_listener_policies(original, self):
        lb = self.elb_backend.get_load_balancer(self._get_param("LoadBalancerName"))
        port = int(self._get_param("LoadBalancerPort"))
        if not any(int(x.load_balancer_port) == port for x in lb.listeners):
            raise ClassicError("ListenerNotFound", f"There is no listener on port {port}")
        check_policies(lb, self._get_param("PolicyNames", []))
        return original(self)

    @wrap(ELBResponse, "set_load_balancer_policies_for_backend_server")
    def clb_backend_policies(original, self):
        lb = self.elb_backend.get_load_balancer(self._get_param("LoadBalancerName"))
        check_policies(lb, self._get_param("PolicyNames", []))
        port = int(self._get_param("InstancePort"))
        # moto knows only the instance ports of the first listeners.
        if not any(int(b.instance_port) == port for b in lb.backends):
            if not any(int(x.instance_port) == port for x in lb.listeners):
                raise ClassicError("InvalidConfigurationRequest", f"There is no listener with instance port {port}")
            lb.backends.append(elb.FakeBackend(instance_port=port))
        return original(self)

    @wrap(backend, "apply_security_groups_to_load_balancer")
    def clb_groups(original, self, load_balancer_name, security_group_ids):
        for g in security_group_ids:
            if cloud(self.region_name).get_security_group_from_id(g) is None:
                raise ClassicError("InvalidSecurityGroup", f"The security group {g} does not exist")
        return original(self, load_balancer_name, security_group_ids)

    # --- network load balancers
    backend = elbv2.ELBv2Backend

    @wrap(backend, "create_load_balancer")
    def nlb_create(original, self, name, security_groups, subnet_ids, subnet_mappings=None, scheme=None,
                   loadbalancer_type=None, ip_address_type="ipv4", tags=None):
        scheme = scheme or "internet-facing"
        found = subnets_by_id(self.region_name, list(subnet_ids or []) + [m["SubnetId"] for m in subnet_mappings or []], NetworkError)
        for lb in self.load_balancers.values():
            if lb.name == name:
                same = (lb.scheme, sorted(s.id for s in lb.subnets), sorted(lb.security_groups or []), lb.type) == \
                    (scheme, sorted(s.id for s in found), sorted(security_groups or []), loadbalancer_type or "application")
                if same:
                    return lb
                raise NetworkError("DuplicateLoadBalancerName", f"A load balancer with the same name '{name}' exists, but with different settings")
        lb = original(self, name, security_groups, subnet_ids, subnet_mappings, scheme, loadbalancer_type, ip_address_type, tags)
        lb.created_at = time.time()
        if loadbalancer_type == "network":
            old, key = lb.arn, lb.arn.rsplit("/", 1)[1]
            lb.arn = lb.arn.replace(":loadbalancer/app/", ":loadbalancer/net/")
            self.load_balancers[lb.arn] = self.load_balancers.pop(old)
            self.tagging_service.copy_tags(old, lb.arn)
            self.tagging_service.delete_all_tags_for_resource(old)
            lb.dns_name = f"{name}-{key}.elb.{self.region_name}.amazonaws.com"
            lb.attrs.setdefault("access_logs.s3.enabled", "false")
            lb.attrs.setdefault("zonal_shift.config.enabled", "false")
            lb.mappings = {m["SubnetId"]: m for m in subnet_mappings or []}
        return lb

    def zone(lb, subnet):
        z = elbv2.AvailabilityZone(subnet)
        m = getattr(lb, "mappings", {}).get(subnet.id, {})
        address = {k: m[k] for k in ("AllocationId",) if k in m}
        if "PrivateIPv4Address" in m:
            address["PrivateIPv4Address"] = m["PrivateIPv4Address"]
        z.load_balancer_addresses = [address] if address else []
        return z

    elbv2.FakeLoadBalancer.availability_zones = property(lambda self: [zone(self, s) for s in self.subnets])

    @wrap(elbv2.FakeLoadBalancer, "activate")
    def nlb_activate(original, self):
        if time.time() - getattr(self, "created_at", 0) >= settings["nlb_provisioning_seconds"] and self.state == "provisioning":
            self.state = settings["nlb_final_state"]

    @wrap(backend, "describe_load_balancers")
    def nlb_describe(original, self, arns, names):
        # moto ignores the second name and later ones.
        known = {lb.name for lb in self.load_balancers.values()}
        if set(names or []) - known or set(arns or []) - set(self.load_balancers):
            raise NetworkError("LoadBalancerNotFound", "One or more load balancers not found")
        return original(self, arns, names)

    @wrap(backend, "set_security_groups")
    def nlb_groups(original, self, arn, sec_groups):
        lb = self.load_balancers.get(arn)
        if lb is not None and lb.type == "network" and not lb.security_groups:
            raise NetworkError("InvalidConfigurationRequest", "You cannot add security groups to a load balancer that was created without them")
        return original(self, arn, sec_groups)

    @wrap(backend, "create_listener")
    def nlb_listener(original, self, load_balancer_arn, protocol, port, ssl_policy, certificate, *rest, **kw):
        lb = self.load_balancers.get(load_balancer_arn)
        if lb is not None and any(str(x.port) == str(port) for x in lb.listeners.values()):
            raise NetworkError("DuplicateListener", f"A listener already exists on this port for this load balancer '{load_balancer_arn}'")
        if protocol in ("TLS", "HTTPS") and not certificate:
            raise NetworkError("CertificateNotFound", "At least one certificate is required")
        return original(self, load_balancer_arn, protocol, port, ssl_policy, certificate, *rest, **kw)

    @wrap(backend, "modify_listener")
    def nlb_modify_listener(original, self, arn, port=None, protocol=None, ssl_policy=None, certificates=None, actions=None):
        is_layer4 = protocol in ("TLS", "UDP", "TCP_UDP")
        listener = original(self, arn, port, None if is_layer4 else protocol, ssl_policy, certificates, actions)
        if is_layer4:
            listener.protocol = protocol
        if certificates and listener.protocol == "TLS":
            listener.certificate = certificates[0]["CertificateArn"]
            listener.certificates = [c["CertificateArn"] for c in certificates]
        relink(self)
        return listener

    def relink(self):
        """A target group belongs to the load balancers whose listeners point at it now."""
        for group in self.target_groups.values():
            group.load_balancer_arns = []
        for lb in self.load_balancers.values():
            for listener in lb.listeners.values():
                for action in listener.default_actions:
                    for arn in self._get_target_group_arns_from(action_data=action.data):
                        if arn in self.target_groups and lb.arn not in self.target_groups[arn].load_balancer_arns:
                            self.target_groups[arn].load_balancer_arns.append(lb.arn)

    @wrap(backend, "delete_listener")
    def nlb_delete_listener(original, self, listener_arn):
        listener = original(self, listener_arn)
        relink(self)
        return listener

    @wrap(backend, "delete_load_balancer")
    def nlb_delete(original, self, arn):
        if arn not in self.load_balancers:
            return None  # a second deletion succeeds
        result = original(self, arn)
        relink(self)
        return result

    @wrap(backend, "create_target_group")
    def nlb_group(original, self, name, **kw):
        for group in self.target_groups.values():
            if group.name == name:
                same = all(kw.get(k) is None or str(getattr(group, k, None)) == str(kw[k]) for k in ("protocol", "port", "vpc_id"))
                if same:
                    return group
                raise NetworkError("DuplicateTargetGroupName", f"A target group with the same name '{name}' exists, but with different settings")
        group = original(self, name, **kw)
        if group.protocol in ("TCP", "TLS", "UDP", "TCP_UDP"):
            group.attributes.setdefault("preserve_client_ip.enabled", "true")
            group.attributes.setdefault("proxy_protocol_v2.enabled", "false")
            group.attributes.setdefault("deregistration_delay.connection_termination.enabled", "false")
        return group

    # A target is a pair of instance and port. A deregistered one drains for some seconds.
    group_class = elbv2.FakeTargetGroup

    def key(self, target):
        return target["Id"], int(target.get("Port") or self.port)

    def register(self, targets):
        region = self.ec2_backend.region_name
        for t in targets:
            if t["Id"].startswith("i-") and not usable(region, t["Id"]):
                raise NetworkError("InvalidTarget", f"The following targets are not valid: '{t['Id']}'")
            k = key(self, t)
            self.targets[k] = {"Id": k[0], "Port": k[1]}
            self.deregistered_targets.pop(k, None)

    def deregister(self, targets):
        for t in targets:
            wanted = [k for k in self.targets if k[0] == t["Id"] and ("Port" not in t or k[1] == int(t["Port"]))]
            if not wanted:
                raise NetworkError("InvalidTarget", f"The following targets are not registered: '{t['Id']}'")
            for k in wanted:
                self.deregistered_targets[k] = {**self.targets.pop(k), "until": time.time() + settings["draining_seconds"]}

    group_class.register, group_class.deregister = register, deregister

    @wrap(backend, "describe_target_health")
    def health(original, self, target_group_arn, targets):
        group = self.target_groups.get(target_group_arn)
        if group is None:
            raise NetworkError("TargetGroupNotFound", "One or more target groups not found")
        instances = all_instances(self.region_name)
        for k in [k for k, t in group.deregistered_targets.items() if t["until"] < time.time()]:
            del group.deregistered_targets[k]
        out = []
        asked = [key(group, t) for t in targets or []] or list(group.targets) + list(group.deregistered_targets)
        for k in asked:
            if k in group.targets:
                stopped = k[0] in instances and instances[k[0]].state != "running"
                unused = not group.load_balancer_arns
                state = ("unused", "Target.InvalidState") if stopped else ("unused", "Target.NotInUse") if unused else ("healthy", None)
            elif k in group.deregistered_targets:
                state = ("draining", "Target.DeregistrationInProgress")
            else:
                state = ("unused", "Target.NotRegistered")
            out.append(elbv2.FakeHealthStatus(k[0], k[1], group.health_check_port, *state))
        return out
