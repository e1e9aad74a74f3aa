"""Calls EC2, ELB, ELBv2, STS and the metadata service with boto3, and checks the behaviour and the form of the answers.

    drive.py URL FACTS

FACTS is JSON: region, keys, and the IDs of the resources of the account. Exits with 1 if a check fails or an answer differs.
"""

import json
import sys
import time

import boto3
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.utils import ContainerMetadataFetcher, InstanceMetadataFetcher, InstanceMetadataRegionFetcher

import models

URL, FACTS = sys.argv[1].rstrip("/"), json.loads(sys.argv[2])
REGION, VPC, NODES, PUBLIC, PRIVATE = (FACTS[name] for name in ("region", "vpc", "nodes", "public", "private"))
TAG = "kubernetes.io/cluster/demo"
OWNED = [{"Key": TAG, "Value": "owned"}]
UNKNOWN = "i-0123456789abcdef0"
PASSED, FAILED, DIFFERENCES = [], [], set()


def examine(http_response, parsed, model, **_):
    """Compares an answer with the model."""
    if http_response.status_code < 300:
        DIFFERENCES.update(models.differences(model, http_response.content))
    elif text := models.error(model, parsed["Error"]["Code"]):
        DIFFERENCES.add(text)


def client(service, key=FACTS["key"], secret=FACTS["secret"], token=None, region=REGION, **config):
    made = boto3.client(service, region_name=region, endpoint_url=URL, aws_access_key_id=key, aws_secret_access_key=secret,
                        aws_session_token=token, config=Config(retries={"total_max_attempts": 1}, **config))
    made.meta.events.register("after-call.*.*", examine)
    return made


def check(what, expected, action):
    try:
        got = action()
    except ClientError as error:
        got = error.response["Error"]["Code"]
    (PASSED if got == expected else FAILED).append(what)
    if got != expected:
        print(f"FAILED: {what}: expected {expected!r}, got {got!r}")
    return got


def message(action):
    try:
        action()
    except ClientError as error:
        return error.response["Error"]["Message"]
    return ""


def where(name, *values):
    return [{"Name": name, "Values": list(values)}]


def pages(api, operation, key, size, **kwargs):
    config = {"PaginationConfig": {"PageSize": size}} if size else {}
    return [item for page in api.get_paginator(operation).paginate(**kwargs, **config) for item in page[key]]


EC2, ELB, V2, STS = (client(service) for service in ("ec2", "elb", "elbv2", "sts"))


def credentials():
    check("identity", "123456789012", lambda: STS.get_caller_identity()["Account"])
    role = {"RoleArn": "arn:aws:iam::123456789012:role/k8s", "RoleSessionName": "judge"}
    session = STS.assume_role(**role)["Credentials"]
    keys = session["AccessKeyId"], session["SecretAccessKey"], session["SessionToken"]
    check("an assumed role", pages(EC2, "describe_subnets", "Subnets", 0), lambda: pages(client("ec2", *keys), "describe_subnets", "Subnets", 0))
    arn = "arn:aws:sts::123456789012:assumed-role/k8s/judge"
    check("its identity", arn, lambda: client("sts", *keys).get_caller_identity()["Arn"])
    check("expiry is a date", True, lambda: session["Expiration"].timestamp() > time.time())
    web = client("sts", signature_version=UNSIGNED)
    check("a web identity", True, lambda: bool(web.assume_role_with_web_identity(**role, WebIdentityToken=FACTS["web"])["Credentials"]))
    check("another web identity", "InvalidIdentityToken", lambda: web.assume_role_with_web_identity(**role, WebIdentityToken="other"))
    check("EC2: an unknown key", "AuthFailure", lambda: client("ec2", key="AKIANONE").describe_instances())
    check("ELB: an unknown key", "InvalidClientTokenId", lambda: client("elb", key="AKIANONE").describe_load_balancers())
    check("EC2: no session token", "AuthFailure", lambda: client("ec2", *keys[:2]).describe_instances())
    check("ELBv2: a wrong session token", "InvalidClientTokenId", lambda: client("elbv2", *keys[:2], "x").describe_load_balancers())
    check("ELB: another region", "SignatureDoesNotMatch", lambda: client("elb", region="eu-west-1").describe_load_balancers())
    short = STS.assume_role(**role, DurationSeconds=900)["Credentials"]
    check("a lifetime", True, lambda: 800 < short["Expiration"].timestamp() - time.time() < 1000)


def instances():
    def ids(**kwargs):
        return sorted(one["InstanceId"] for item in pages(EC2, "describe_instances", "Reservations", 0, **kwargs) for one in item["Instances"])

    check("pages of five", ids(), lambda: sorted(
        item["Instances"][0]["InstanceId"] for item in pages(EC2, "describe_instances", "Reservations", 5)))
    check("a page that is too small", "InvalidParameterValue", lambda: EC2.describe_instances(MaxResults=2))
    check("pages of IDs", "InvalidParameterCombination", lambda: EC2.describe_instances(InstanceIds=NODES[:1], MaxResults=5))
    check("an unknown token", "InvalidParameterValue", lambda: EC2.describe_instances(MaxResults=5, NextToken="x"))
    check("a cluster tag", sorted(NODES), lambda: ids(Filters=where("tag-key", TAG) + where("instance-type", "t3.medium", "hpc7a.12xlarge")
          + where("subnet-id", PRIVATE[0], PRIVATE[1]) + where("instance.group-id", FACTS["node_group"])))
    check("a tag with another value", [], lambda: ids(Filters=where(f"tag:{TAG}", "shared")))
    node = EC2.describe_instances(InstanceIds=NODES[:1])["Reservations"][0]["Instances"][0]
    name = node["PrivateDnsName"]
    check("a private DNS name", NODES[:1], lambda: ids(Filters=where("private-dns-name", name, "other") + where("instance-state-name", "running")))
    check("a private DNS name in capitals", [], lambda: ids(Filters=where("private-dns-name", name.upper())))
    check("a wildcard", NODES[:1], lambda: ids(Filters=where("private-dns-name", name.replace("ip-", "i?-").replace("ec2", "*"))))
    check("too many values", "FilterLimitExceeded", lambda: ids(Filters=where("private-dns-name", *map(str, range(201)))))
    check("an unknown filter", "InvalidParameterValue", lambda: ids(Filters=where("colour", "red")))
    check("an unknown ID", "InvalidInstanceID.NotFound", lambda: ids(InstanceIds=[NODES[0], UNKNOWN]))
    both = message(lambda: ids(InstanceIds=[NODES[0], UNKNOWN, "i-0fedcba9876543210"]))
    check("unknown IDs are named", f"The instance IDs '{UNKNOWN}, i-0fedcba9876543210' do not exist", lambda: both)
    check("a malformed ID", "InvalidInstanceID.Malformed", lambda: ids(InstanceIds=["fargate-1", UNKNOWN]))
    check("an instance", (REGION + "a", "t3.medium", "running", VPC, True), lambda: (
        node["Placement"]["AvailabilityZone"], node["InstanceType"], node["State"]["Name"], node["VpcId"], node["SourceDestCheck"]))
    nic = node["NetworkInterfaces"][0]
    check("its interface", ("in-use", 0, node["PrivateIpAddress"], True), lambda: (
        nic["Status"], nic["Attachment"]["DeviceIndex"], nic["PrivateIpAddresses"][0]["PrivateIpAddress"], nic["PrivateIpAddresses"][0]["Primary"]))
    dual = EC2.describe_instances(InstanceIds=[FACTS["dual"]])["Reservations"][0]["Instances"][0]
    check("a public address", ("198.51.100.7", "ec2-198-51-100-7.compute-1.amazonaws.com"), lambda: (dual["PublicIpAddress"], dual["PublicDnsName"]))
    check("interfaces and IPv6", [(0, "2001:db8::7"), (1, None)], lambda: [
        (nic["Attachment"]["DeviceIndex"], next((a["Ipv6Address"] for a in nic["Ipv6Addresses"]), None)) for nic in dual["NetworkInterfaces"]])
    EC2.modify_instance_attribute(InstanceId=NODES[0], SourceDestCheck={"Value": False})
    check("no source check", False, lambda: EC2.describe_instances(InstanceIds=NODES[:1])["Reservations"][0]["Instances"][0]["SourceDestCheck"])
    check("two interfaces", "InvalidInstanceID", lambda: EC2.modify_instance_attribute(InstanceId=FACTS["dual"], SourceDestCheck={"Value": False}))
    check("a dry run", "DryRunOperation", lambda: EC2.describe_instances(DryRun=True))
    check("a dry run of a write", "DryRunOperation", lambda: EC2.delete_tags(Resources=NODES[:1], DryRun=True))
    check("topology", [(FACTS["hpc"], 3, "use1-az1")], lambda: [(one["InstanceId"], len(one["NetworkNodes"]), one["ZoneId"])
          for one in pages(EC2, "describe_instance_topology", "Instances", 10)])
    check("no topology", [], lambda: EC2.describe_instance_topology(InstanceIds=NODES[:1])["Instances"])
    found = EC2.describe_network_interfaces(Filters=where("vpc-id", VPC) + where("private-ip-address", node["PrivateIpAddress"])
                                            + where("attachment.status", "attached"))["NetworkInterfaces"]
    check("an interface by address", [(nic["NetworkInterfaceId"], REGION + "a", NODES[0])], lambda: [
        (one["NetworkInterfaceId"], one["AvailabilityZone"], one["Attachment"]["InstanceId"]) for one in found])


def tags():
    key = [{"Key": "judge", "Value": "1"}]
    tagged = lambda: [item["Instances"][0]["InstanceId"] for item in EC2.describe_instances(Filters=where("tag:judge", "1"))["Reservations"]]  # noqa: E731
    EC2.create_tags(Resources=NODES[:2], Tags=key)
    check("tagged", sorted(NODES[:2]), lambda: sorted(tagged()))
    EC2.delete_tags(Resources=NODES[:1], Tags=[{"Key": "judge", "Value": "2"}])
    check("another value is kept", sorted(NODES[:2]), lambda: sorted(tagged()))
    EC2.delete_tags(Resources=NODES[:1], Tags=key)
    EC2.delete_tags(Resources=NODES[1:2], Tags=[{"Key": "judge"}])
    check("untagged", [], tagged)
    for expected, resource in (("InvalidInstanceID.NotFound", UNKNOWN), ("InvalidInstanceID.Malformed", "i-zzz"), ("InvalidID", "kwok"),
                               ("InvalidGroup.NotFound", "sg-0123456789abcdef0")):
        check(f"tagging {resource}", expected, lambda: EC2.create_tags(Resources=[NODES[0], resource], Tags=key))
        check(f"untagging {resource}", expected, lambda: EC2.delete_tags(Resources=[resource], Tags=key))
    many = [{"Key": f"tag-{n}", "Value": ""} for n in range(50)]
    check("too many tags", "TagLimitExceeded", lambda: EC2.create_tags(Resources=NODES[:1], Tags=many))


def rule(protocol, low, high, *cidrs, group=None, text=None):
    text = {"Description": text} if text else {}
    made = {"IpProtocol": protocol, "FromPort": low, "ToPort": high}
    if cidrs:
        made["IpRanges"] = [{"CidrIp": cidr, **text} for cidr in cidrs]
    if group:
        made["UserIdGroupPairs"] = [{"GroupId": group, **text}]
    return [made]


def groups():
    specification = [{"ResourceType": "security-group", "Tags": OWNED}]
    make = lambda: EC2.create_security_group(GroupName="k8s-elb-judge", Description="judge", VpcId=VPC, TagSpecifications=specification)["GroupId"]  # noqa: E731
    key = make()
    get = lambda: EC2.describe_security_groups(GroupIds=[key])["SecurityGroups"][0]  # noqa: E731
    check("a group", ("k8s-elb-judge", "judge", VPC, OWNED), lambda: (get()["GroupName"], get()["Description"], get()["VpcId"], get()["Tags"]))
    check("its name again", "InvalidGroup.Duplicate", make)
    check("by name", [key], lambda: [one["GroupId"] for one in EC2.describe_security_groups(
        Filters=where("group-name", "k8s-elb-judge") + where("vpc-id", VPC))["SecurityGroups"]])
    check("in pages", True, lambda: key in [one["GroupId"] for one in pages(EC2, "describe_security_groups", "SecurityGroups", 5, Filters=where("tag-key", TAG))])
    check("an unknown group", "InvalidGroup.NotFound", lambda: EC2.describe_security_groups(GroupIds=["sg-0123456789abcdef0"]))
    allow = lambda permissions, to=key: EC2.authorize_security_group_ingress(GroupId=to, IpPermissions=permissions)["SecurityGroupRules"]  # noqa: E731
    revoke = lambda permissions, of=key: EC2.revoke_security_group_ingress(GroupId=of, IpPermissions=permissions)["Return"]  # noqa: E731
    made = allow(rule("tcp", 80, 80, "0.0.0.0/0", "10.0.0.5/8", text="kubernetes.io/rule/nlb/client=x") + rule("icmp", 3, 4, "0.0.0.0/0"))
    check("new rules", [("tcp", "0.0.0.0/0"), ("tcp", "10.0.0.0/8"), ("icmp", "0.0.0.0/0")], lambda: [(one["IpProtocol"], one["CidrIpv4"]) for one in made])
    allow([{**rule("6", 80, 80)[0], "Ipv6Ranges": [{"CidrIpv6": "2001:DB8::1/32"}]}])
    check("rules of one port", [("icmp", 3, 4, 1, 0), ("tcp", 80, 80, 2, 1)], lambda: sorted(
        (one["IpProtocol"], one["FromPort"], one["ToPort"], len(one["IpRanges"]), len(one["Ipv6Ranges"])) for one in get()["IpPermissions"]))
    ranges = lambda: {one["CidrIp"]: one.get("Description") for p in get()["IpPermissions"] if p["IpProtocol"] == "tcp" for one in p["IpRanges"]}  # noqa: E731
    text = "kubernetes.io/rule/nlb/client=x"
    check("canonical CIDRs and descriptions", {"0.0.0.0/0": text, "10.0.0.0/8": text}, ranges)
    for expected, permissions in (("InvalidPermission.Duplicate", rule("tcp", 80, 80, "0.0.0.0/0")), ("InvalidParameterValue", rule("tls", 443, 443, "0.0.0.0/0")),
                                  ("InvalidParameterValue", rule("tcp", 81, 81, "::/0")), ("InvalidParameterValue", rule("tcp", 2, 1, "0.0.0.0/0")),
                                  ("InvalidParameterValue", rule("tcp", 83, 83, "0.0.0.0/0", "0.0.0.0/0")), ("MissingParameter", rule("tcp", 83, 83)),
                                  ("RulesPerSecurityGroupLimitExceeded", rule("tcp", 90, 90, *(f"10.9.{n}.0/24" for n in range(60))))):
        check(f"rejected: {expected}", expected, lambda: allow(permissions))
    check("one of two CIDRs revoked", {"0.0.0.0/0": text}, lambda: (revoke(rule("tcp", 80, 80, "10.0.0.0/8")), ranges())[1])
    check("an absent rule", "InvalidPermission.NotFound", lambda: revoke(rule("tcp", 81, 81, "10.0.0.0/8")))
    nodes = FACTS["node_group"]
    allow(rule("-1", 0, 0, group=key), nodes)
    check("a rule from a group has no ports", [("-1", None, key)], lambda: [(p["IpProtocol"], p.get("FromPort"), p["UserIdGroupPairs"][0]["GroupId"])
          for p in EC2.describe_security_groups(GroupIds=[nodes])["SecurityGroups"][0]["IpPermissions"]])
    check("by source group", [nodes], lambda: [one["GroupId"] for one in EC2.describe_security_groups(Filters=where("ip-permission.group-id", key))["SecurityGroups"]])
    check("a group that a rule names", "DependencyViolation", lambda: EC2.delete_security_group(GroupId=key))
    revoke(rule("-1", -1, -1, group=key), nodes)
    check("a group that interfaces use", "DependencyViolation", lambda: EC2.delete_security_group(GroupId=nodes))
    check("a deleted group", key, lambda: EC2.delete_security_group(GroupId=key)["GroupId"])
    check("deleted twice", "InvalidGroup.NotFound", lambda: EC2.delete_security_group(GroupId=key))


def networks():
    zones = [(one["ZoneName"], one["ZoneId"], one["ZoneType"]) for one in EC2.describe_availability_zones()["AvailabilityZones"]]
    check("zones", [(f"{REGION}{letter}", f"use1-az{n}", "availability-zone") for n, letter in enumerate("abc", 1)], lambda: zones)
    subnets = EC2.describe_subnets(Filters=where("vpc-id", VPC))["Subnets"]
    check("subnets", 6, lambda: len(subnets))
    check("by name", [PUBLIC[0]], lambda: [one["SubnetId"] for one in EC2.describe_subnets(Filters=where("tag:Name", "public-a") + where("vpc-id", VPC))["Subnets"]])
    check("an unknown subnet", "InvalidSubnetID.NotFound", lambda: EC2.describe_subnets(SubnetIds=["subnet-0123456789abcdef0"]))
    tables = pages(EC2, "describe_route_tables", "RouteTables", 5, Filters=where("vpc-id", VPC))
    check("the main table", 1, lambda: sum(any(a["Main"] for a in table["Associations"]) for table in tables))
    check("public tables", 1, lambda: sum(any(r.get("GatewayId", "").startswith("igw-") for r in table["Routes"]) for table in tables))
    table, cidr = FACTS["table"], "10.244.7.0/24"
    check("by cluster tag", [table], lambda: [one["RouteTableId"] for one in EC2.describe_route_tables(Filters=where("tag-key", TAG))["RouteTables"]])
    check("by subnet", [table], lambda: [one["RouteTableId"] for one in EC2.describe_route_tables(Filters=where("association.subnet-id", PRIVATE[0]))["RouteTables"]])
    check("an unknown table", "InvalidRouteTableID.NotFound", lambda: EC2.describe_route_tables(RouteTableIds=["rtb-0123456789abcdef0"]))
    put = lambda node: EC2.create_route(RouteTableId=table, DestinationCidrBlock="10.244.7.9/24", InstanceId=node)["Return"]  # noqa: E731
    routes = lambda: [r for r in EC2.describe_route_tables(RouteTableIds=[table])["RouteTables"][0]["Routes"] if r.get("DestinationCidrBlock") == cidr]  # noqa: E731
    check("a route", True, lambda: put(NODES[0]))
    check("its target", [(NODES[0], True, "active", "CreateRoute")], lambda: [
        (r["InstanceId"], r["NetworkInterfaceId"].startswith("eni-"), r["State"], r["Origin"]) for r in routes()])
    check("its destination again", "RouteAlreadyExists", lambda: put(NODES[1]))
    check("an unknown instance", "InvalidInstanceID.NotFound", lambda: put(UNKNOWN))
    EC2.delete_route(RouteTableId=table, DestinationCidrBlock=cidr)
    check("a deleted route", "InvalidRoute.NotFound", lambda: EC2.delete_route(RouteTableId=table, DestinationCidrBlock=cidr))
    check("a blackhole", [("10.244.9.0/24", None)], lambda: [(r["DestinationCidrBlock"], r.get("InstanceId")) for r in
          EC2.describe_route_tables(RouteTableIds=[table])["RouteTables"][0]["Routes"] if r["State"] == "blackhole"])


def classic():
    name, group = "ajudge", EC2.create_security_group(GroupName="judge-classic", Description="judge", VpcId=VPC)["GroupId"]
    listener = {"Protocol": "tcp", "LoadBalancerPort": 80, "InstanceProtocol": "tcp", "InstancePort": 30080}
    make = lambda **kw: ELB.create_load_balancer(**{**dict(LoadBalancerName=name, Listeners=[listener], Subnets=PUBLIC[:2], SecurityGroups=[group], Tags=OWNED), **kw})["DNSName"]  # noqa: E731
    get = lambda n=name: ELB.describe_load_balancers(LoadBalancerNames=[n])["LoadBalancerDescriptions"][0]  # noqa: E731
    check("CLB: absent", "LoadBalancerNotFound", get)
    dns = make()
    check("CLB: DNS name", True, lambda: dns.startswith(name + "-") and dns.endswith(f".{REGION}.elb.amazonaws.com"))
    check("CLB: the same again", dns, make)
    for expected, changes in (("DuplicateLoadBalancerName", {"Scheme": "internal"}), ("SubnetNotFound", {"Subnets": ["subnet-1"]}),
                              ("InvalidConfigurationRequest", {"Subnets": [PUBLIC[0], PRIVATE[0]]}), ("InvalidSecurityGroup", {"SecurityGroups": ["sg-1"]}),
                              ("ValidationError", {"LoadBalancerName": "a_b"}), ("TooManyLoadBalancers", {"LoadBalancerName": "b"})):
        check(f"CLB: {expected}", expected, lambda: [make(**changes), make(**{**changes, "LoadBalancerName": "c"})])
    found = get()
    check("CLB: described", (dns, "internet-facing", PUBLIC[:2], [group], [REGION + "a", REGION + "b"], VPC), lambda: (
        found["DNSName"], found["Scheme"], found["Subnets"], found["SecurityGroups"], found["AvailabilityZones"], found["VPCId"]))
    check("CLB: default health check", "TCP:30080", lambda: found["HealthCheck"]["Target"])
    tags_ = lambda: ELB.describe_tags(LoadBalancerNames=[name])["TagDescriptions"][0]["Tags"]  # noqa: E731
    ELB.add_tags(LoadBalancerNames=[name], Tags=[{"Key": "a", "Value": ""}])
    check("CLB: tags", OWNED + [{"Key": "a", "Value": ""}], tags_)
    ELB.remove_tags(LoadBalancerNames=[name], Tags=[{"Key": "a"}])
    check("CLB: removed tags", OWNED, tags_)
    check("CLB: its group", "DependencyViolation", lambda: EC2.delete_security_group(GroupId=group))
    listen = lambda **kw: ELB.create_load_balancer_listeners(LoadBalancerName=name, Listeners=[{**listener, "LoadBalancerPort": 443, **kw}])  # noqa: E731
    ports = lambda: [(d["Listener"]["LoadBalancerPort"], d["Listener"]["Protocol"], d["Listener"].get("SSLCertificateId")) for d in get()["ListenerDescriptions"]]  # noqa: E731
    listen(Protocol="ssl", SSLCertificateId=FACTS["certificate"])
    check("CLB: listeners", [(80, "TCP", None), (443, "SSL", FACTS["certificate"])], ports)
    for expected, changes in (("DuplicateListener", {}), ("CertificateNotFound", {"Protocol": "ssl", "SSLCertificateId": "arn:none"}), ("ValidationError", {"Protocol": "https"}),
                              ("UnsupportedProtocol", {"Protocol": "udp"}), ("ValidationError", {"Protocol": "http"})):
        check(f"CLB: listener {expected}", expected, lambda: listen(**changes))
    policy = dict(LoadBalancerName=name, PolicyName="proxy", PolicyTypeName="ProxyProtocolPolicyType",
                  PolicyAttributes=[{"AttributeName": "ProxyProtocol", "AttributeValue": "true"}])
    describe = lambda: ELB.describe_load_balancer_policies(LoadBalancerName=name, PolicyNames=["proxy"])["PolicyDescriptions"]  # noqa: E731
    check("CLB: absent policy", "PolicyNotFound", describe)
    ELB.create_load_balancer_policy(**policy)
    check("CLB: policy", [("proxy", policy["PolicyAttributes"])], lambda: [(p["PolicyName"], p["PolicyAttributeDescriptions"]) for p in describe()])
    check("CLB: its name again", "DuplicatePolicyName", lambda: ELB.create_load_balancer_policy(**{**policy, "PolicyAttributes": []}))
    check("CLB: policy type", "PolicyTypeNotFound", lambda: ELB.create_load_balancer_policy(**{**policy, "PolicyName": "x", "PolicyTypeName": "x"}))
    backend = lambda *names: ELB.set_load_balancer_policies_for_backend_server(LoadBalancerName=name, InstancePort=30080, PolicyNames=list(names))  # noqa: E731
    backends = lambda: [(b["InstancePort"], b["PolicyNames"]) for b in get()["BackendServerDescriptions"]]  # noqa: E731
    check("CLB: backend policy", [(30080, ["proxy"])], lambda: (backend("proxy"), backends())[1])
    check("CLB: no backend policy", [], lambda: (backend(), backends())[1])
    check("CLB: unknown backend policy", "PolicyNotFound", lambda: backend("none"))
    set_ = lambda port: ELB.set_load_balancer_policies_of_listener(LoadBalancerName=name, LoadBalancerPort=port, PolicyNames=["proxy"])  # noqa: E731
    check("CLB: listener policy", [[], ["proxy"]], lambda: (set_(443), [d["PolicyNames"] for d in get()["ListenerDescriptions"]])[1])
    check("CLB: policy of no listener", "ListenerNotFound", lambda: set_(1))
    ELB.delete_load_balancer_listeners(LoadBalancerName=name, LoadBalancerPorts=[443])
    check("CLB: one listener", [(80, "TCP", None)], ports)
    health = {"Target": "HTTP:31000/healthz", "Interval": 10, "Timeout": 5, "UnhealthyThreshold": 6, "HealthyThreshold": 2}
    put_health = lambda **kw: ELB.configure_health_check(LoadBalancerName=name, HealthCheck={**health, **kw})["HealthCheck"]  # noqa: E731
    check("CLB: health check", (health, health), lambda: (put_health(), get()["HealthCheck"]))
    for changes in ({"Target": "HTTP:80"}, {"Target": "UDP:80"}, {"Interval": 301}, {"Timeout": 10}):
        check(f"CLB: health check {changes}", "ValidationError", lambda: put_health(**changes))
    attributes = lambda: ELB.describe_load_balancer_attributes(LoadBalancerName=name)["LoadBalancerAttributes"]  # noqa: E731
    expected = {"CrossZoneLoadBalancing": {"Enabled": False}, "AccessLog": {"Enabled": False}, "ConnectionDraining": {"Enabled": False, "Timeout": 300},
                "ConnectionSettings": {"IdleTimeout": 60}, "AdditionalAttributes": [{"Key": "elb.http.desyncmitigationmode", "Value": "defensive"}]}
    check("CLB: default attributes", expected, attributes)
    ELB.modify_load_balancer_attributes(LoadBalancerName=name, LoadBalancerAttributes={"CrossZoneLoadBalancing": {"Enabled": True}, "ConnectionSettings": {"IdleTimeout": 90}})
    check("CLB: attributes", {**expected, "CrossZoneLoadBalancing": {"Enabled": True}, "ConnectionSettings": {"IdleTimeout": 90}}, attributes)
    register = lambda *ids: [i["InstanceId"] for i in ELB.register_instances_with_load_balancer(LoadBalancerName=name, Instances=[{"InstanceId": i} for i in ids])["Instances"]]  # noqa: E731
    check("CLB: instances", NODES[:2], lambda: (register(*NODES[:2]), register(NODES[0]))[1])
    check("CLB: unknown instance", "InvalidInstance", lambda: register(UNKNOWN))
    ELB.deregister_instances_from_load_balancer(LoadBalancerName=name, Instances=[{"InstanceId": NODES[0]}])
    check("CLB: deregistered", NODES[1:2], lambda: [i["InstanceId"] for i in get()["Instances"]])
    attach = lambda subnet: len(ELB.attach_load_balancer_to_subnets(LoadBalancerName=name, Subnets=[subnet])["Subnets"])  # noqa: E731
    check("CLB: subnets", [3, "InvalidConfigurationRequest", "SubnetNotFound"], lambda: [attach(PUBLIC[2]), code(attach, PRIVATE[2]), code(attach, "subnet-1")])
    check("CLB: a detached subnet", 2, lambda: len(ELB.detach_load_balancer_from_subnets(LoadBalancerName=name, Subnets=PUBLIC[2:])["Subnets"]))
    check("CLB: groups", [FACTS["node_group"]], lambda: ELB.apply_security_groups_to_load_balancer(LoadBalancerName=name, SecurityGroups=[FACTS["node_group"]])["SecurityGroups"])
    check("CLB: pages", {name, "b"}, lambda: {d["LoadBalancerName"] for d in pages(ELB, "describe_load_balancers", "LoadBalancerDescriptions", 1)})
    check("CLB: limits", "2", lambda: {one["Name"]: one["Max"] for one in ELB.describe_account_limits()["Limits"]}["classic-load-balancers"])
    for n in (name, "b", name):
        ELB.delete_load_balancer(LoadBalancerName=n)
    check("CLB: gone", "LoadBalancerNotFound", get)
    EC2.delete_security_group(GroupId=group)


def code(action, *args):
    try:
        return action(*args)
    except ClientError as error:
        return error.response["Error"]["Code"]


def network():
    name = "ajudgenet"
    get = lambda: V2.describe_load_balancers(Names=[name])["LoadBalancers"][0]  # noqa: E731
    make = lambda **kw: V2.create_load_balancer(**{**dict(Name=name, Type="network", Tags=OWNED, SubnetMappings=[{"SubnetId": s} for s in PUBLIC[:2]]), **kw})["LoadBalancers"][0]  # noqa: E731
    check("NLB: absent", "LoadBalancerNotFound", get)
    made = make()
    arn = made["LoadBalancerArn"]
    check("NLB: new", ("provisioning", "network", "internet-facing", VPC, "ipv4"), lambda: (made["State"]["Code"], made["Type"], made["Scheme"], made["VpcId"], made["IpAddressType"]))
    check("NLB: names", (True, True), lambda: (f":loadbalancer/net/{name}/" in arn, made["DNSName"].endswith(f".elb.{REGION}.amazonaws.com")))
    check("NLB: the same again", arn, lambda: make()["LoadBalancerArn"])
    for expected, changes in (("DuplicateLoadBalancerName", {"Scheme": "internal"}), ("SubnetNotFound", {"SubnetMappings": [{"SubnetId": "subnet-1"}]}),
                              ("AllocationIdNotFound", {"Name": "x", "SubnetMappings": [{"SubnetId": PUBLIC[0], "AllocationId": "eipalloc-1"}]}),
                              ("InvalidSecurityGroup", {"SecurityGroups": ["sg-1"]}), ("ValidationError", {"Name": "internal-x"})):
        check(f"NLB: {expected}", expected, lambda: make(**changes))
    end = time.time() + 20
    while get()["State"]["Code"] == "provisioning" and time.time() < end:
        time.sleep(0.2)
    check("NLB: active", "active", lambda: get()["State"]["Code"])
    check("NLB: groups cannot be added", "InvalidConfigurationRequest", lambda: V2.set_security_groups(LoadBalancerArn=arn, SecurityGroups=[FACTS["node_group"]]))
    group = lambda n="k8s-judge", **kw: V2.create_target_group(**{**dict(Name=n, Protocol="TCP", Port=30080, VpcId=VPC, TargetType="instance", HealthCheckProtocol="TCP", HealthCheckPort="traffic-port",  # noqa: E731
        HealthCheckIntervalSeconds=30, HealthyThresholdCount=3, UnhealthyThresholdCount=3, Tags=OWNED), **kw})["TargetGroups"][0]
    first = group()
    one = first["TargetGroupArn"]
    check("NLB: target group", ("k8s-judge", 30080, "TCP", 30, 3, []), lambda: tuple(first[f] for f in (
        "TargetGroupName", "Port", "Protocol", "HealthCheckIntervalSeconds", "HealthyThresholdCount", "LoadBalancerArns")))
    check("NLB: the same group again", one, lambda: group()["TargetGroupArn"])
    check("NLB: its name again", "DuplicateTargetGroupName", lambda: group(Port=30081))
    two = group("k8s-judge-2", HealthCheckProtocol="HTTP", HealthCheckPort="31000", HealthCheckPath="/healthz", HealthCheckIntervalSeconds=10)["TargetGroupArn"]
    listen = lambda target, port=80, **kw: V2.create_listener(LoadBalancerArn=arn, Protocol=kw.pop("Protocol", "TCP"), Port=port, Tags=OWNED,  # noqa: E731
        DefaultActions=[{"Type": "forward", "TargetGroupArn": target}], **kw)["Listeners"][0]
    listener = listen(one)["ListenerArn"]
    check("NLB: a port in use", "DuplicateListener", lambda: listen(two))
    check("NLB: groups of a load balancer", [(one, [arn])], lambda: [(g["TargetGroupArn"], g["LoadBalancerArns"]) for g in V2.describe_target_groups(LoadBalancerArn=arn)["TargetGroups"]])
    check("NLB: a group in use", "ResourceInUse", lambda: V2.delete_target_group(TargetGroupArn=one))
    check("NLB: a changed listener", two, lambda: V2.modify_listener(ListenerArn=listener, DefaultActions=[{"Type": "forward", "TargetGroupArn": two}])["Listeners"][0]["DefaultActions"][0]["TargetGroupArn"])
    V2.delete_target_group(TargetGroupArn=one)
    secure = dict(Protocol="TLS", Certificates=[{"CertificateArn": FACTS["certificate"]}])
    check("NLB: TLS", ("TLS", "ELBSecurityPolicy-2016-08", FACTS["certificate"]), lambda: (lambda l: (l["Protocol"], l["SslPolicy"], l["Certificates"][0]["CertificateArn"]))(listen(two, 443, **secure)))
    udp = group("k8s-udp", Protocol="UDP")["TargetGroupArn"]
    for expected, target, kw in (("CertificateNotFound", two, {"Protocol": "TLS"}), ("SSLPolicyNotFound", two, {**secure, "SslPolicy": "none"}), ("UnsupportedProtocol", two, {"Protocol": "HTTP"}),
                                 ("IncompatibleProtocols", udp, {}), ("TargetGroupNotFound", one, {}), ("ValidationError", two, {"Certificates": secure["Certificates"]})):
        check(f"NLB: listener {expected}", expected, lambda: listen(target, 444, **kw))
    check("NLB: listeners", [80, 443], lambda: sorted(l["Port"] for l in pages(V2, "describe_listeners", "Listeners", 1, LoadBalancerArn=arn)))
    check("NLB: a changed health check", "/livez", lambda: V2.modify_target_group(TargetGroupArn=two, HealthCheckPath="/livez")["TargetGroups"][0]["HealthCheckPath"])
    put = lambda *targets: V2.register_targets(TargetGroupArn=two, Targets=[{"Id": i, "Port": p} for i, p in targets])  # noqa: E731
    health = lambda: sorted((h["Target"]["Id"], h["Target"]["Port"], h["HealthCheckPort"], h["TargetHealth"]["State"], h["TargetHealth"].get("Reason", ""))  # noqa: E731
                            for h in V2.describe_target_health(TargetGroupArn=two)["TargetHealthDescriptions"])
    put((NODES[0], 30080), (NODES[1], 30080), (NODES[1], 30081))
    check("NLB: targets", sorted((i, p, "31000", "healthy", "") for i, p in ((NODES[0], 30080), (NODES[1], 30080), (NODES[1], 30081))), health)
    check("NLB: an unknown target", "InvalidTarget", lambda: put((UNKNOWN, 30080)))
    V2.deregister_targets(TargetGroupArn=two, Targets=[{"Id": NODES[1], "Port": 30080}])
    check("NLB: a draining target", ("draining", "Target.DeregistrationInProgress"), lambda: next(h[3:] for h in health() if h[:2] == (NODES[1], 30080)))
    put((NODES[1], 30080))
    check("NLB: registered again", "healthy", lambda: next(h[3] for h in health() if h[:2] == (NODES[1], 30080)))
    attributes = lambda: {a["Key"]: a["Value"] for a in V2.describe_load_balancer_attributes(LoadBalancerArn=arn)["Attributes"]}  # noqa: E731
    cross, modify = "load_balancing.cross_zone.enabled", lambda key, value: V2.modify_load_balancer_attributes(LoadBalancerArn=arn, Attributes=[{"Key": key, "Value": value}])
    check("NLB: attributes", ("false", "true"), lambda: (attributes()[cross], (modify(cross, "true"), attributes()[cross])[1]))
    check("NLB: an unknown attribute", "ValidationError", lambda: modify("colour", "red"))
    known = lambda: {a["Key"]: a["Value"] for a in V2.describe_target_group_attributes(TargetGroupArn=two)["Attributes"]}  # noqa: E731
    proxy = "proxy_protocol_v2.enabled"
    V2.modify_target_group_attributes(TargetGroupArn=two, Attributes=[{"Key": proxy, "Value": "true"}])
    check("NLB: group attributes", ("true", "true"), lambda: (known()["preserve_client_ip.enabled"], known()[proxy]))
    tags_ = lambda key: V2.describe_tags(ResourceArns=[key])["TagDescriptions"][0]["Tags"]  # noqa: E731
    check("NLB: tags", [OWNED] * 3, lambda: [tags_(key) for key in (arn, two, listener)])
    V2.add_tags(ResourceArns=[two], Tags=[{"Key": "a", "Value": "b"}])
    V2.remove_tags(ResourceArns=[two], TagKeys=[TAG])
    check("NLB: changed tags", [{"Key": "a", "Value": "b"}], lambda: tags_(two))
    guarded = make(Name="ajudgesg", Scheme="internal", SecurityGroups=[FACTS["node_group"]], SubnetMappings=[{"SubnetId": PRIVATE[0], "PrivateIPv4Address": FACTS["free"]}])
    check("NLB: internal", ("internal", [FACTS["node_group"]], FACTS["free"]), lambda: (
        guarded["Scheme"], guarded["SecurityGroups"], guarded["AvailabilityZones"][0]["LoadBalancerAddresses"][0]["PrivateIPv4Address"]))
    check("NLB: its groups", [FACTS["other_group"]], lambda: V2.set_security_groups(LoadBalancerArn=guarded["LoadBalancerArn"], SecurityGroups=[FACTS["other_group"]])["SecurityGroupIds"])
    elastic = make(Name="ajudgeeip", SubnetMappings=[{"SubnetId": PUBLIC[0], "AllocationId": FACTS["allocation"]}])
    check("NLB: elastic address", {"AllocationId": FACTS["allocation"], "IpAddress": "203.0.113.10"}, lambda: elastic["AvailabilityZones"][0]["LoadBalancerAddresses"][0])
    check("NLB: pages", 3, lambda: len(pages(V2, "describe_load_balancers", "LoadBalancers", 2)))
    check("NLB: limits", True, lambda: "network-load-balancers" in {one["Name"] for one in V2.describe_account_limits()["Limits"]})
    for balancer in V2.describe_load_balancers()["LoadBalancers"] + [made]:
        V2.delete_load_balancer(LoadBalancerArn=balancer["LoadBalancerArn"])
    check("NLB: gone", ["LoadBalancerNotFound", "ListenerNotFound"], lambda: [code(get), code(lambda: V2.describe_listeners(ListenerArns=[listener]))])
    V2.delete_target_group(TargetGroupArn=two)
    V2.delete_target_group(TargetGroupArn=udp)
    check("NLB: no groups", [], lambda: V2.describe_target_groups()["TargetGroups"])


def metadata():
    config = {"ec2_metadata_service_endpoint": URL + "/"}
    check("IMDS: region", REGION, lambda: InstanceMetadataRegionFetcher(config=config).retrieve_region())
    found = InstanceMetadataFetcher(config=config).retrieve_iam_role_credentials()
    check("IMDS: credentials", True, lambda: bool(client("ec2", found["access_key"], found["secret_key"], found["token"]).describe_subnets()["Subnets"]))
    got = ContainerMetadataFetcher().retrieve_full_uri(URL + "/v2/credentials", headers={"Authorization": FACTS["container"]})
    check("container: credentials", True, lambda: bool(client("elb", got["AccessKeyId"], got["SecretAccessKey"], got["Token"]).describe_load_balancers()))


for part in (credentials, instances, tags, groups, networks, classic, network, metadata):
    part()
for text in sorted(DIFFERENCES):
    print(f"DIFFERENCE: {text}")
print(f"{len(PASSED)} checks passed, {len(FAILED)} failed, {len(DIFFERENCES)} differences")
sys.exit(bool(FAILED or DIFFERENCES))
