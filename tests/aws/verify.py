"""Checks that moto and the proxy behave as AWS documents. Prints N/N at the end.

    verify.py FOLDER

A failed check prints the expected and the actual result. Every resource created here is
deleted again, so verify can run any number of times.
"""

import datetime
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid

import boto3
import botocore.auth
import botocore.session
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError
from botocore.httpsession import URLLib3Session
from botocore.utils import InstanceMetadataFetcher, InstanceMetadataRegionFetcher

IDS = json.load(open(os.path.join(sys.argv[1], "ids.json")))
URLS = json.load(open(os.path.join(sys.argv[1], "endpoints.json")))
REGION, CLUSTER = IDS["region"], IDS["cluster"]
ENDPOINT, CONTROL, METADATA = URLS["endpoint"], URLS["control"], URLS["metadata"]
KEY, SECRET = URLS["access_key"], URLS["secret_key"]
TAG = f"kubernetes.io/cluster/{CLUSTER}"
RUN = uuid.uuid4().hex[:6]
PASSED, FAILED = [], []
ONCE = Config(retries={"total_max_attempts": 1})


def check(what, expected, action):
    """Compares the result of the action, or the code of its AWS error, with the expected one."""
    try:
        got = action()
    except ClientError as e:
        got = e.response["Error"]["Code"]
    except Exception as e:  # noqa: BLE001 - any other error is a failure, too
        got = f"{type(e).__name__}: {e}"
    good = expected(got) if callable(expected) else got == expected
    (PASSED if good else FAILED).append(what)
    wanted = "as described" if callable(expected) else repr(expected)
    print(f"ok    {what}" if good else f"FAIL  {what}: wanted {wanted}, got {str(got)[:300]!r}", flush=True)
    return got


def client(service, key=KEY, secret=SECRET, token=None, region=REGION):
    return boto3.client(service, region_name=region, endpoint_url=ENDPOINT, aws_access_key_id=key,
                        aws_secret_access_key=secret, aws_session_token=token, config=ONCE)


def control(path, method="GET", **body):
    request = urllib.request.Request(f"{CONTROL}/{path}", method=method,
                                     data=json.dumps(body).encode() if body else None)
    return json.load(urllib.request.urlopen(request))


def message(action):
    try:
        action()
    except ClientError as e:
        return e.response["Error"]["Message"]
    return ""


def flt(name, *values):
    return {"Name": name, "Values": list(values)}


ec2, elb, elbv2, sts = client("ec2"), client("elb"), client("elbv2"), client("sts")
NODES = [v for k, v in IDS.items() if k.startswith("node-") and "/" not in k]


def raw(service, params, change=lambda r: None, after=lambda r: None, now=None):
    """Sends one signed request, and returns its status and error code."""
    versions = {"ec2": "2016-11-15", "elasticloadbalancing": "2012-06-01", "sts": "2011-06-15"}
    body = "&".join(f"{k}={v}" for k, v in {"Version": versions[service], **params}.items())
    request = AWSRequest("POST", ENDPOINT + "/", {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}, body)
    change(request)
    signer = botocore.auth.SigV4Auth(Credentials(KEY, SECRET), service, REGION)
    real = botocore.auth.get_current_datetime
    if now:
        botocore.auth.get_current_datetime = lambda *a, **k: now
    try:
        signer.add_auth(request)
    finally:
        botocore.auth.get_current_datetime = real
    after(request)
    answer = URLLib3Session().send(request.prepare())
    code = answer.text.split("<Code>")[1].split("</Code>")[0] if "<Code>" in answer.text else ""
    return answer.status_code, code


def body_of(action):
    """Returns the body of a response as it is."""
    query = f"{ENDPOINT}/?Action={action}&Version=2016-11-15"
    return urllib.request.urlopen(query).read().decode()


def signatures():
    check("identity with good keys", "123456789012", lambda: sts.get_caller_identity()["Account"])
    check("EC2, wrong secret", "AuthFailure", lambda: client("ec2", secret="x" * 40).describe_instances())
    check("ELB, wrong secret", "SignatureDoesNotMatch", lambda: client("elb", secret="x" * 40).describe_load_balancers())
    check("EC2, unknown key", "AuthFailure", lambda: client("ec2", key="AKIANOSUCHKEY").describe_instances())
    check("ELB, unknown key", "InvalidClientTokenId", lambda: client("elb", key="AKIANOSUCHKEY").describe_load_balancers())
    check("signed for another region", "SignatureDoesNotMatch", lambda: client("elb", region="us-east-1").describe_load_balancers())
    check("hand-signed request", (200, ""), lambda: raw("ec2", {"Action": "DescribeVpcs"}))
    check("signed for another service", (403, "SignatureDoesNotMatch"),
          lambda: raw("sts", {"Action": "DescribeLoadBalancers", "Version": "2012-06-01"}))
    old = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None) - datetime.timedelta(minutes=20)
    check("EC2, clock 20 minutes behind", (400, "RequestExpired"), lambda: raw("ec2", {"Action": "DescribeVpcs"}, now=old))
    check("ELB, clock 20 minutes behind", (403, "SignatureDoesNotMatch"),
          lambda: raw("elasticloadbalancing", {"Action": "DescribeLoadBalancers"}, now=old))
    check("a body changed after signing", (401, "AuthFailure"), lambda: raw(
        "ec2", {"Action": "DescribeVpcs"}, after=lambda r: setattr(r, "data", r.data + "&DryRun=false")))
    check("no signature at all", (403, "MissingAuthenticationToken"), lambda: raw(
        "ec2", {"Action": "DescribeVpcs"}, after=lambda r: r.headers.__delitem__("Authorization")))
    check("repeated blanks in a signed header", (200, ""), lambda: raw(
        "ec2", {"Action": "DescribeVpcs"}, change=lambda r: r.headers.add_header("X-Amz-Meta-Odd", "a   b  c")))

    if shutil.which("curl"):
        by_curl = lambda secret: subprocess.run(  # noqa: E731
            ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--aws-sigv4", f"aws:amz:{REGION}:ec2", "--user", f"{KEY}:{secret}",
             "-d", "Action=DescribeVpcs&Version=2016-11-15", ENDPOINT + "/"], capture_output=True, text=True, check=False).stdout
        check("signed by curl, another implementation", "200", lambda: by_curl(SECRET))
        check("signed by curl with a wrong secret", "401", lambda: by_curl("x" * 40))
    role = sts.assume_role(RoleArn="arn:aws:iam::123456789012:role/k8s", RoleSessionName="verify")["Credentials"]
    key, secret, token = role["AccessKeyId"], role["SecretAccessKey"], role["SessionToken"]
    check("assumed role: its keys work", True, lambda: bool(client("ec2", key, secret, token).describe_vpcs()["Vpcs"]))
    check("assumed role: no session token", "AuthFailure", lambda: client("ec2", key, secret).describe_vpcs())
    check("assumed role: wrong session token", "AuthFailure", lambda: client("ec2", key, secret, token + "x").describe_vpcs())

    check("an unknown action", (400, "InvalidAction"), lambda: raw("ec2", {"Action": "DescribeEverything"}))
    check("an unknown parameter", (400, "UnknownParameter"), lambda: raw("ec2", {"Action": "DescribeVpcs", "Vpcs.1": "x"}))
    check("EC2 list written the ELB way", (400, "UnknownParameter"),
          lambda: raw("ec2", {"Action": "DescribeVpcs", "VpcId.member.1": IDS["vpc"]}))
    check("a required parameter left out", (400, "MissingParameter"), lambda: raw("ec2", {"Action": "DeleteRoute"}))
    check("an integer that is none", (400, "InvalidParameterValue"),
          lambda: raw("ec2", {"Action": "DescribeInstances", "MaxResults": "ten"}))


def instances():
    def ids(**kwargs):
        return [i["InstanceId"] for p in ec2.get_paginator("describe_instances").paginate(**kwargs)
                for r in p["Reservations"] for i in r["Instances"]]

    everything = ids()
    check("all instances", True, lambda: set(NODES) <= set(everything))
    check("pages of five hold each instance once", sorted(everything), lambda: sorted(ids(PaginationConfig={"PageSize": 5})))
    check("a page token is given while more is to come", True, lambda: bool(ec2.describe_instances(MaxResults=5).get("NextToken")))
    check("MaxResults below five", "InvalidParameterValue", lambda: ec2.describe_instances(MaxResults=2))
    check("MaxResults together with ids", "InvalidParameterCombination",
          lambda: ec2.describe_instances(InstanceIds=NODES[:1], MaxResults=5))
    check("a made-up page token", "InvalidParameterValue", lambda: ec2.describe_instances(MaxResults=5, NextToken="nonsense"))
    check("by cluster tag", True, lambda: IDS["untagged"] not in ids(Filters=[flt("tag-key", TAG)]) and set(NODES) <= set(ids(Filters=[flt("tag-key", TAG)])))
    check("by tag value", set(ids(Filters=[flt("tag-key", TAG)])), lambda: set(ids(Filters=[flt(f"tag:{TAG}", "owned")])))
    check("by tag value, none", [], lambda: ids(Filters=[flt(f"tag:{TAG}", "shared")]))
    check("by private DNS name", [IDS["node-1"]], lambda: ids(Filters=[flt("private-dns-name", IDS["node-1/dns"])]))
    check("the filter minds upper case", [], lambda: ids(Filters=[flt("private-dns-name", IDS["node-1/dns"].upper())]))
    check("several names in one filter", {IDS["node-1"], IDS["node-2"]},
          lambda: set(ids(Filters=[flt("private-dns-name", IDS["node-1/dns"], IDS["node-2/dns"])])))
    check("two filters are joined by and", [], lambda: ids(Filters=[flt("private-dns-name", IDS["node-1/dns"]), flt("instance-state-name", "stopped")]))
    check("200 values in one filter, the limit", [IDS["node-1"]],
          lambda: ids(Filters=[flt("private-dns-name", IDS["node-1/dns"], *(f"no-{n}" for n in range(199)))]))
    check("201 values are too many", "FilterLimitExceeded",
          lambda: ids(Filters=[flt("private-dns-name", *(f"no-{n}" for n in range(201)))]))
    check("an unknown filter", "InvalidParameterValue", lambda: ids(Filters=[flt("colour", "red")]))

    gone = "i-0123456789abcdef0"
    check("an unknown id fails the whole batch", "InvalidInstanceID.NotFound", lambda: ids(InstanceIds=[NODES[0], gone]))
    check("the message names the unknown id", True, lambda: gone in message(lambda: ids(InstanceIds=[NODES[0], gone])))
    check("two unknown ids are both named", True, lambda: all(
        g in message(lambda: ids(InstanceIds=[NODES[0], gone, "i-0fedcba9876543210"])) for g in (gone, "i-0fedcba9876543210")))
    check("a malformed id", "InvalidInstanceID.Malformed", lambda: ids(InstanceIds=["fargate-1"]))

    node = ec2.describe_instances(InstanceIds=[IDS["node-1"]])["Reservations"][0]["Instances"][0]
    check("placement, type, state", (REGION + "a", "t3.medium", "running"),
          lambda: (node["Placement"]["AvailabilityZone"], node["InstanceType"], node["State"]["Name"]))
    nic = node["NetworkInterfaces"][0]
    check("network interface: in use, index 0, its address", ("in-use", 0, node["PrivateIpAddress"]),
          lambda: (nic["Status"], nic["Attachment"]["DeviceIndex"], nic["PrivateIpAddresses"][0]["PrivateIpAddress"]))
    check("private node has no public address", (None, ""), lambda: (node.get("PublicIpAddress"), node.get("PublicDnsName", "")))
    if len(NODES) >= 4:
        n4 = ec2.describe_instances(InstanceIds=[IDS["node-4"]])["Reservations"][0]["Instances"][0]
        check("public node has address and DNS name", True, lambda: bool(n4["PublicIpAddress"] and n4["PublicDnsName"]))

    check("source/dest check starts on", True, lambda: node["SourceDestCheck"])
    ec2.modify_instance_attribute(InstanceId=IDS["node-1"], SourceDestCheck={"Value": False})
    check("source/dest check off", False, lambda: ec2.describe_instance_attribute(
        InstanceId=IDS["node-1"], Attribute="sourceDestCheck")["SourceDestCheck"]["Value"])
    check("... and in DescribeInstances", False, lambda: ec2.describe_instances(
        InstanceIds=[IDS["node-1"]])["Reservations"][0]["Instances"][0]["SourceDestCheck"])
    ec2.modify_instance_attribute(InstanceId=IDS["node-1"], SourceDestCheck={"Value": True})

    state = lambda i: ec2.describe_instances(InstanceIds=[i])["Reservations"][0]["Instances"][0]["State"]["Name"]  # noqa: E731
    for name in ("stopping", "stopped", "shutting-down", "pending", "running"):
        control(f"instances/{IDS['node-2']}", "POST", state=name)
        check(f"state {name} on demand", name, lambda: state(IDS["node-2"]))
    image = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    extra = ec2.run_instances(ImageId=image, InstanceType="t3.micro", MinCount=1, MaxCount=1, SubnetId=IDS["subnet-private-a"])["Instances"][0]["InstanceId"]
    ec2.terminate_instances(InstanceIds=[extra])
    check("a terminated instance stays listed for a while", "terminated", lambda: state(extra))

    # Pages consist of reservations.
    many = [ec2.run_instances(ImageId=image, InstanceType="t3.micro", MinCount=1, MaxCount=1, SubnetId=IDS["subnet-private-b"])["Instances"][0]["InstanceId"]
            for _ in range(101)]
    check("more than 100 ids are on one page", (101, None), lambda: (lambda page: (len(page["Reservations"]), page.get("NextToken")))(
        ec2.describe_instances(InstanceIds=many)))
    ec2.terminate_instances(InstanceIds=many)

    check("tag and untag", [], lambda: (
        ec2.create_tags(Resources=[IDS["node-1"]], Tags=[{"Key": "verify", "Value": "1"}]),
        ec2.delete_tags(Resources=[IDS["node-1"]], Tags=[{"Key": "verify"}]),
        ids(Filters=[flt("tag-key", "verify")]))[2])
    check("tagging an unknown instance", "InvalidInstanceID.NotFound",
          lambda: ec2.create_tags(Resources=[gone], Tags=[{"Key": "a", "Value": "b"}]))
    check("tagging a malformed instance id", "InvalidInstanceID.Malformed",
          lambda: ec2.create_tags(Resources=["i-zzz"], Tags=[{"Key": "a", "Value": "b"}]))
    check("untagging an unknown instance", "InvalidInstanceID.NotFound", lambda: ec2.delete_tags(Resources=[gone], Tags=[{"Key": "a"}]))
    check("the 51st tag", "TagLimitExceeded", lambda: ec2.create_tags(
        Resources=[IDS["untagged"]], Tags=[{"Key": f"t{n}", "Value": ""} for n in range(50)]))

    zones = ec2.describe_availability_zones()["AvailabilityZones"]
    check("zones have ids and a type", True, lambda: all(z["ZoneId"] and z["ZoneType"] == "availability-zone" for z in zones))
    check("topology of an instance", 3, lambda: len(ec2.describe_instance_topology(InstanceIds=[IDS["hpc-1"]])["Instances"][0]["NetworkNodes"]))
    check("topology of a type that has none", [], lambda: ec2.describe_instance_topology(InstanceIds=[IDS["node-1"]])["Instances"])
    check("interface by private address", 1, lambda: len(ec2.describe_network_interfaces(
        Filters=[flt("vpc-id", IDS["vpc"]), flt("private-ip-address", node["PrivateIpAddress"])])["NetworkInterfaces"]))
    check("interface by private DNS name", 1, lambda: len(ec2.describe_network_interfaces(
        Filters=[flt("vpc-id", IDS["vpc"]), flt("private-dns-name", node["PrivateDnsName"])])["NetworkInterfaces"]))


def groups():
    name = f"k8s-elb-verify-{RUN}"
    make = lambda: ec2.create_security_group(  # noqa: E731
        GroupName=name, Description="verify", VpcId=IDS["vpc"],
        TagSpecifications=[{"ResourceType": "security-group", "Tags": [{"Key": TAG, "Value": "owned"}]}])["GroupId"]
    sg = make()
    check("group created with tags", [{"Key": TAG, "Value": "owned"}], lambda: ec2.describe_security_groups(GroupIds=[sg])["SecurityGroups"][0]["Tags"])
    check("the same name in the VPC again", "InvalidGroup.Duplicate", make)
    check("group by name and VPC", [sg], lambda: [g["GroupId"] for g in ec2.describe_security_groups(
        Filters=[flt("group-name", name), flt("vpc-id", IDS["vpc"])])["SecurityGroups"]])
    check("groups by cluster tag", True, lambda: {sg, IDS["sg-nodes"]} <= {g["GroupId"] for g in ec2.describe_security_groups(
        Filters=[flt("tag-key", TAG)])["SecurityGroups"]})
    check("groups in pages", True, lambda: sg in [g["GroupId"] for p in ec2.get_paginator("describe_security_groups").paginate(
        PaginationConfig={"PageSize": 5}) for g in p["SecurityGroups"]])
    check("an unknown group", "InvalidGroup.NotFound", lambda: ec2.describe_security_groups(GroupIds=["sg-0123456789abcdef0"]))

    def permission(proto, low, high, *cidrs, group=None, text=None):
        out = {"IpProtocol": proto, "FromPort": low, "ToPort": high}
        if proto == "-1":
            out = {"IpProtocol": "-1"}
        if cidrs:
            out["IpRanges"] = [{"CidrIp": c, **({"Description": text} if text else {})} for c in cidrs]
        if group:
            out["UserIdGroupPairs"] = [{"GroupId": group}]
        return [out]

    allow = lambda g, p: ec2.authorize_security_group_ingress(GroupId=g, IpPermissions=p)["Return"]  # noqa: E731
    revoke = lambda g, p: ec2.revoke_security_group_ingress(GroupId=g, IpPermissions=p)["Return"]  # noqa: E731
    check("allow two ranges and path-MTU", True, lambda: allow(sg, permission("tcp", 80, 80, "0.0.0.0/0", "10.0.0.0/8", text="kubernetes.io/rule/nlb/client=x")) and allow(sg, permission("icmp", 3, 4, "0.0.0.0/0")))
    check("the rules come back grouped by port", [("icmp", 3, 4, 1), ("tcp", 80, 80, 2)], lambda: sorted(
        (p["IpProtocol"], p["FromPort"], p["ToPort"], len(p["IpRanges"])) for p in ec2.describe_security_groups(GroupIds=[sg])["SecurityGroups"][0]["IpPermissions"]))
    check("descriptions come back", "kubernetes.io/rule/nlb/client=x", lambda: [
        p for p in ec2.describe_security_groups(GroupIds=[sg])["SecurityGroups"][0]["IpPermissions"] if p["IpProtocol"] == "tcp"][0]["IpRanges"][0]["Description"])
    check("the same rule again", "InvalidPermission.Duplicate", lambda: allow(sg, permission("tcp", 80, 80, "0.0.0.0/0")))
    check("an unknown protocol", "InvalidParameterValue", lambda: allow(sg, permission("tls", 443, 443, "0.0.0.0/0")))
    check("a range with host bits is made canonical", "10.0.0.0/8", lambda: (allow(sg, permission("tcp", 82, 82, "10.0.0.5/8")), [
        p for p in ec2.describe_security_groups(GroupIds=[sg])["SecurityGroups"][0]["IpPermissions"] if p["FromPort"] == 82][0]["IpRanges"][0]["CidrIp"])[1])
    check("revoke one range of two", True, lambda: revoke(sg, permission("tcp", 80, 80, "10.0.0.0/8", text="kubernetes.io/rule/nlb/client=x")))
    check("revoke a rule that is not there", "InvalidPermission.NotFound", lambda: revoke(sg, permission("tcp", 81, 81, "10.0.0.0/8")))
    check("allow all from a group", True, lambda: allow(IDS["sg-nodes"], permission("-1", 0, 0, group=sg)))
    check("by referenced group", [IDS["sg-nodes"]], lambda: [g["GroupId"] for g in ec2.describe_security_groups(
        Filters=[flt("ip-permission.group-id", sg)])["SecurityGroups"]])
    check("61st rule of a group", "RulesPerSecurityGroupLimitExceeded", lambda: allow(
        sg, permission("tcp", 90, 90, *(f"10.9.{n}.0/24" for n in range(70)))))
    check("delete a group that another one names", "DependencyViolation", lambda: ec2.delete_security_group(GroupId=sg))
    check("take the reference away", True, lambda: revoke(IDS["sg-nodes"], permission("-1", 0, 0, group=sg)))
    check("delete a group in use by an interface", "DependencyViolation", lambda: ec2.delete_security_group(GroupId=IDS["sg-extra"]))
    check("delete the group", None, lambda: ec2.delete_security_group(GroupId=sg).get("nothing"))
    check("delete it again", "InvalidGroup.NotFound", lambda: ec2.delete_security_group(GroupId=sg))


def networks():
    check("subnets of the VPC", 8, lambda: len(ec2.describe_subnets(Filters=[flt("vpc-id", IDS["vpc"])])["Subnets"]))
    check("a subnet by Name tag", [IDS["subnet-public-a"]], lambda: [s["SubnetId"] for s in ec2.describe_subnets(
        Filters=[flt("vpc-id", IDS["vpc"]), flt("tag:Name", "subnet-public-a")])["Subnets"]])
    check("an unknown subnet", "InvalidSubnetID.NotFound", lambda: ec2.describe_subnets(SubnetIds=["subnet-0123456789abcdef0"]))
    tables = ec2.describe_route_tables(Filters=[flt("vpc-id", IDS["vpc"])])["RouteTables"]
    check("one main table", 1, lambda: sum(any(a.get("Main") for a in t["Associations"]) for t in tables))
    check("a gateway route makes a table public", [IDS["rtb-public"]], lambda: [
        t["RouteTableId"] for t in tables if any(r.get("GatewayId", "").startswith("igw-") for r in t["Routes"])])
    check("table by association", [IDS["rtb-nodes"]], lambda: [t["RouteTableId"] for t in ec2.describe_route_tables(
        Filters=[flt("association.subnet-id", IDS["subnet-private-a"])])["RouteTables"]])
    check("table by cluster tag", [IDS["rtb-nodes"]], lambda: [t["RouteTableId"] for t in ec2.describe_route_tables(
        Filters=[flt("tag-key", TAG)])["RouteTables"]])
    check("table by one of two tags", [IDS["rtb-nodes"]], lambda: [t["RouteTableId"] for t in ec2.describe_route_tables(
        Filters=[flt("tag-key", TAG, "KubernetesCluster")])["RouteTables"]])
    check("an unknown table", "InvalidRouteTableID.NotFound", lambda: ec2.describe_route_tables(RouteTableIds=["rtb-0123456789abcdef0"]))

    rtb, cidr = IDS["rtb-nodes"], "10.244.7.0/24"
    route = lambda: [r for r in ec2.describe_route_tables(RouteTableIds=[rtb])["RouteTables"][0]["Routes"]  # noqa: E731
                     if r.get("DestinationCidrBlock") == cidr]
    put = lambda i: ec2.create_route(RouteTableId=rtb, DestinationCidrBlock=cidr, InstanceId=i)["Return"]  # noqa: E731
    check("route to an instance", True, lambda: put(IDS["node-1"]))
    check("the route names instance, interface, state, origin", (IDS["node-1"], True, "active", "CreateRoute"), lambda: (
        route()[0].get("InstanceId"), bool(route()[0].get("NetworkInterfaceId")), route()[0].get("State"), route()[0].get("Origin")))
    check("the same destination again, other target", "RouteAlreadyExists", lambda: put(IDS["node-2"]))
    ec2.delete_route(RouteTableId=rtb, DestinationCidrBlock=cidr)
    check("route deleted", [], route)
    check("delete it again", "InvalidRoute.NotFound", lambda: ec2.delete_route(RouteTableId=rtb, DestinationCidrBlock=cidr))
    check("route to an unknown instance", "InvalidInstanceID.NotFound", lambda: put("i-0123456789abcdef0"))
    image = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    short = ec2.run_instances(ImageId=image, InstanceType="t3.micro", MinCount=1, MaxCount=1, SubnetId=IDS["subnet-private-a"])["Instances"][0]["InstanceId"]
    put(short)
    ec2.terminate_instances(InstanceIds=[short])
    check("a route whose instance is gone is a blackhole", ("blackhole", None), lambda: (route()[0].get("State"), route()[0].get("InstanceId")))
    check("... and can be deleted", [], lambda: (ec2.delete_route(RouteTableId=rtb, DestinationCidrBlock=cidr), route())[1])


def classic():
    name = f"averify{RUN}"
    sg = ec2.create_security_group(GroupName=f"k8s-elb-{name}", Description="verify", VpcId=IDS["vpc"])["GroupId"]
    listener = {"Protocol": "TCP", "LoadBalancerPort": 80, "InstanceProtocol": "TCP", "InstancePort": 30080}
    subnets = [IDS["subnet-public-a"], IDS["subnet-public-b"]]
    make = lambda **kw: elb.create_load_balancer(**{**dict(  # noqa: E731
        LoadBalancerName=name, Listeners=[listener], Subnets=subnets, SecurityGroups=[sg],
        Tags=[{"Key": TAG, "Value": "owned"}, {"Key": "kubernetes.io/service-name", "Value": "default/x"}]), **kw})
    get = lambda n=name: elb.describe_load_balancers(LoadBalancerNames=[n])["LoadBalancerDescriptions"][0]  # noqa: E731

    check("CLB: quotas of the account", "20", lambda: {x["Name"]: x["Max"] for x in elb.describe_account_limits()["Limits"]}["classic-load-balancers"])
    check("CLB: absent", "LoadBalancerNotFound", get)
    check("CLB: absent, and so are its attributes", "LoadBalancerNotFound", lambda: elb.describe_load_balancer_attributes(LoadBalancerName=name))
    dns = check("CLB: DNS name", lambda d: d.startswith(name + "-") and d.endswith(f".{REGION}.elb.amazonaws.com"), lambda: make()["DNSName"])
    check("CLB: the same again answers the same", dns, lambda: make()["DNSName"])
    check("CLB: the same name with other settings", "DuplicateLoadBalancerName", lambda: make(Listeners=[{**listener, "LoadBalancerPort": 81}]))
    check("CLB: described", (dns, "internet-facing", sorted(subnets), [sg]), lambda: (
        get()["DNSName"], get()["Scheme"], sorted(get()["Subnets"]), get()["SecurityGroups"]))
    check("CLB: zones follow subnets", [REGION + "a", REGION + "b"], lambda: sorted(get()["AvailabilityZones"]))
    check("CLB: tags", {TAG, "kubernetes.io/service-name"}, lambda: {t["Key"] for t in elb.describe_tags(LoadBalancerNames=[name])["TagDescriptions"][0]["Tags"]})
    check("CLB: add a tag", True, lambda: (elb.add_tags(LoadBalancerNames=[name], Tags=[{"Key": "a", "Value": ""}]),
          "a" in {t["Key"] for t in elb.describe_tags(LoadBalancerNames=[name])["TagDescriptions"][0]["Tags"]})[1])
    check("CLB: a group in use cannot go", "DependencyViolation", lambda: ec2.delete_security_group(GroupId=sg))
    second = {"Protocol": "TCP", "LoadBalancerPort": 443, "InstanceProtocol": "TCP", "InstancePort": 30443}
    check("CLB: second listener", 2, lambda: (elb.create_load_balancer_listeners(LoadBalancerName=name, Listeners=[second]), len(get()["ListenerDescriptions"]))[1])
    check("CLB: the same listener again is accepted", 2, lambda: (elb.create_load_balancer_listeners(LoadBalancerName=name, Listeners=[second]), len(get()["ListenerDescriptions"]))[1])
    check("CLB: another listener on that port", "DuplicateListener", lambda: elb.create_load_balancer_listeners(LoadBalancerName=name, Listeners=[{**second, "InstancePort": 30444}]))
    check("CLB: protocols come back upper-case", {"TCP"}, lambda: {d["Listener"]["Protocol"] for d in get()["ListenerDescriptions"]} | {d["Listener"]["InstanceProtocol"] for d in get()["ListenerDescriptions"]})
    check("CLB: listener gone", [80], lambda: (elb.delete_load_balancer_listeners(LoadBalancerName=name, LoadBalancerPorts=[443]),
          [d["Listener"]["LoadBalancerPort"] for d in get()["ListenerDescriptions"]])[1])
    more = [{**second, "LoadBalancerPort": port} for port in (443, 8081)]
    check("CLB: several listeners gone", [80], lambda: (elb.create_load_balancer_listeners(LoadBalancerName=name, Listeners=more),
          elb.delete_load_balancer_listeners(LoadBalancerName=name, LoadBalancerPorts=[443, 8081]),
          [d["Listener"]["LoadBalancerPort"] for d in get()["ListenerDescriptions"]])[2])
    secure = {"Protocol": "SSL", "LoadBalancerPort": 8443, "InstanceProtocol": "TCP", "InstancePort": 30080, "SSLCertificateId": IDS["certificate"]}
    check("CLB: TLS listener keeps its certificate", IDS["certificate"], lambda: (elb.create_load_balancer_listeners(LoadBalancerName=name, Listeners=[secure]),
          [d["Listener"].get("SSLCertificateId") for d in get()["ListenerDescriptions"] if d["Listener"]["LoadBalancerPort"] == 8443][0])[1])
    check("CLB: unknown certificate", "CertificateNotFound", lambda: elb.create_load_balancer_listeners(LoadBalancerName=name, Listeners=[
        {**secure, "LoadBalancerPort": 9443, "SSLCertificateId": "arn:aws:acm:eu-west-1:123456789012:certificate/none"}]))

    policy = dict(LoadBalancerName=name, PolicyName="k8s-proxyprotocol-enabled", PolicyTypeName="ProxyProtocolPolicyType",
                  PolicyAttributes=[{"AttributeName": "ProxyProtocol", "AttributeValue": "true"}])
    check("CLB: policy absent", "PolicyNotFound", lambda: elb.describe_load_balancer_policies(LoadBalancerName=name, PolicyNames=["k8s-proxyprotocol-enabled"]))
    check("CLB: policy created", "ProxyProtocolPolicyType", lambda: (elb.create_load_balancer_policy(**policy), elb.describe_load_balancer_policies(
        LoadBalancerName=name, PolicyNames=["k8s-proxyprotocol-enabled"])["PolicyDescriptions"][0]["PolicyTypeName"])[1])
    check("CLB: policy created again, other settings", "DuplicatePolicyName", lambda: elb.create_load_balancer_policy(
        **{**policy, "PolicyAttributes": [{"AttributeName": "ProxyProtocol", "AttributeValue": "false"}]}))
    check("CLB: an unknown policy type", "PolicyTypeNotFound", lambda: elb.create_load_balancer_policy(**{**policy, "PolicyName": "x", "PolicyTypeName": "Nonsense"}))
    check("CLB: policy on the instance port", [(30080, ["k8s-proxyprotocol-enabled"])], lambda: (elb.set_load_balancer_policies_for_backend_server(
        LoadBalancerName=name, InstancePort=30080, PolicyNames=["k8s-proxyprotocol-enabled"]),
        [(b["InstancePort"], b["PolicyNames"]) for b in get()["BackendServerDescriptions"]])[1])
    check("CLB: policy off the instance port", [], lambda: (elb.set_load_balancer_policies_for_backend_server(LoadBalancerName=name, InstancePort=30080, PolicyNames=[]),
          [b for b in get()["BackendServerDescriptions"] if b["PolicyNames"]])[1])
    check("CLB: unknown policy on an instance port", "PolicyNotFound", lambda: elb.set_load_balancer_policies_for_backend_server(
        LoadBalancerName=name, InstancePort=30080, PolicyNames=["none"]))
    negotiation = "k8s-SSLNegotiationPolicy-ELBSecurityPolicy-TLS-1-2-2017-01"
    check("CLB: TLS policy on a listener", [negotiation], lambda: (
        elb.create_load_balancer_policy(LoadBalancerName=name, PolicyName=negotiation, PolicyTypeName="SSLNegotiationPolicyType",
                                        PolicyAttributes=[{"AttributeName": "Reference-Security-Policy", "AttributeValue": "ELBSecurityPolicy-TLS-1-2-2017-01"}]),
        elb.set_load_balancer_policies_of_listener(LoadBalancerName=name, LoadBalancerPort=8443, PolicyNames=[negotiation]),
        [d["PolicyNames"] for d in get()["ListenerDescriptions"] if d["Listener"]["LoadBalancerPort"] == 8443][0])[2])
    check("CLB: policy of a listener that is not there", "ListenerNotFound", lambda: elb.set_load_balancer_policies_of_listener(
        LoadBalancerName=name, LoadBalancerPort=1, PolicyNames=[negotiation]))

    health = {"Target": "HTTP:31000/healthz", "Interval": 10, "Timeout": 5, "UnhealthyThreshold": 6, "HealthyThreshold": 2}
    check("CLB: health check", health, lambda: (elb.configure_health_check(LoadBalancerName=name, HealthCheck=health), get()["HealthCheck"])[1])
    attributes = lambda: elb.describe_load_balancer_attributes(LoadBalancerName=name)["LoadBalancerAttributes"]  # noqa: E731
    check("CLB: default attributes", (False, False, False, 60), lambda: (
        attributes()["CrossZoneLoadBalancing"]["Enabled"], attributes()["AccessLog"]["Enabled"], attributes()["ConnectionDraining"]["Enabled"], attributes()["ConnectionSettings"]["IdleTimeout"]))
    check("CLB: attributes changed", (True, 120, True, 30), lambda: (elb.modify_load_balancer_attributes(LoadBalancerName=name, LoadBalancerAttributes={
        "CrossZoneLoadBalancing": {"Enabled": True}, "ConnectionSettings": {"IdleTimeout": 120}, "ConnectionDraining": {"Enabled": True, "Timeout": 30}}),
        attributes()["CrossZoneLoadBalancing"]["Enabled"], attributes()["ConnectionSettings"]["IdleTimeout"],
        attributes()["ConnectionDraining"]["Enabled"], attributes()["ConnectionDraining"]["Timeout"])[1:])

    members = lambda: sorted(i["InstanceId"] for i in get()["Instances"])  # noqa: E731
    put = lambda *i: elb.register_instances_with_load_balancer(LoadBalancerName=name, Instances=[{"InstanceId": x} for x in i])  # noqa: E731
    check("CLB: register", sorted(NODES[:2]), lambda: (put(*NODES[:2]), members())[1])
    check("CLB: register again", sorted(NODES[:2]), lambda: (put(NODES[0]), members())[1])
    check("CLB: register an unknown instance", "InvalidInstance", lambda: put("i-0123456789abcdef0"))
    check("CLB: deregister", [NODES[1]], lambda: (elb.deregister_instances_from_load_balancer(LoadBalancerName=name, Instances=[{"InstanceId": NODES[0]}]), members())[1])
    check("CLB: attach a subnet", 3, lambda: len(elb.attach_load_balancer_to_subnets(LoadBalancerName=name, Subnets=[IDS["subnet-public-c"]])["Subnets"]))
    check("CLB: a second subnet of one zone", "InvalidConfigurationRequest", lambda: elb.attach_load_balancer_to_subnets(LoadBalancerName=name, Subnets=[IDS["subnet-private-c"]]))
    check("CLB: attach an unknown subnet", "SubnetNotFound", lambda: elb.attach_load_balancer_to_subnets(LoadBalancerName=name, Subnets=["subnet-0123456789abcdef0"]))
    check("CLB: detach a subnet", 2, lambda: len(elb.detach_load_balancer_from_subnets(LoadBalancerName=name, Subnets=[IDS["subnet-public-c"]])["Subnets"]))
    check("CLB: other groups", [IDS["sg-extra"]], lambda: elb.apply_security_groups_to_load_balancer(LoadBalancerName=name, SecurityGroups=[IDS["sg-extra"]])["SecurityGroups"])
    check("CLB: an unknown group", "InvalidSecurityGroup", lambda: elb.apply_security_groups_to_load_balancer(LoadBalancerName=name, SecurityGroups=["sg-0123456789abcdef0"]))

    inner = f"averifyint{RUN}"
    check("CLB: internal name and scheme", (True, "internal"), lambda: (make(LoadBalancerName=inner, Scheme="internal")["DNSName"].startswith(f"internal-{inner}-"), get(inner)["Scheme"]))
    check("CLB: pages", True, lambda: {name, inner} <= {d["LoadBalancerName"] for p in elb.get_paginator("describe_load_balancers").paginate(
        PaginationConfig={"PageSize": 1}) for d in p["LoadBalancerDescriptions"]})
    check("CLB: one unknown name of two", "LoadBalancerNotFound", lambda: elb.describe_load_balancers(LoadBalancerNames=[name, "none"]))
    for n in (name, inner, name):
        check("CLB: delete, also a second time", 200, lambda n=n: elb.delete_load_balancer(LoadBalancerName=n)["ResponseMetadata"]["HTTPStatusCode"])
    check("CLB: its group can go now", 200, lambda: ec2.delete_security_group(GroupId=sg)["ResponseMetadata"]["HTTPStatusCode"])


def network():
    name = f"averify{RUN}"
    get = lambda: elbv2.describe_load_balancers(Names=[name])["LoadBalancers"][0]  # noqa: E731
    make = lambda **kw: elbv2.create_load_balancer(**{**dict(  # noqa: E731
        Name=name, Type="network", SubnetMappings=[{"SubnetId": IDS["subnet-public-a"]}, {"SubnetId": IDS["subnet-public-b"]}],
        Tags=[{"Key": TAG, "Value": "owned"}]), **kw})["LoadBalancers"][0]
    check("NLB: absent", "LoadBalancerNotFound", get)
    lb = check("NLB: created, provisioning", lambda v: isinstance(v, dict) and v["State"]["Code"] == "provisioning", make)
    if not isinstance(lb, dict):
        return
    arn = lb["LoadBalancerArn"]
    check("NLB: ARN", True, lambda: f":loadbalancer/net/{name}/" in arn)
    check("NLB: DNS name", True, lambda: lb["DNSName"].startswith(name + "-") and lb["DNSName"].endswith(f".elb.{REGION}.amazonaws.com"))
    check("NLB: type, scheme, VPC", ("network", "internet-facing", IDS["vpc"]), lambda: (lb["Type"], lb["Scheme"], lb["VpcId"]))
    check("NLB: zones with subnets", sorted([IDS["subnet-public-a"], IDS["subnet-public-b"]]), lambda: sorted(z["SubnetId"] for z in get()["AvailabilityZones"]))
    check("NLB: the same again answers the same", arn, lambda: make()["LoadBalancerArn"])
    check("NLB: the same name, other settings", "DuplicateLoadBalancerName", lambda: make(Scheme="internal"))

    def active():
        for _ in range(50):
            if get()["State"]["Code"] == "active":
                return "active"
            time.sleep(0.2)
        return get()["State"]["Code"]

    check("NLB: becomes active", "active", active)
    check("NLB: no groups at the start, none can be added", "InvalidConfigurationRequest", lambda: elbv2.set_security_groups(LoadBalancerArn=arn, SecurityGroups=[IDS["sg-extra"]]))

    def group(n, **kw):
        return elbv2.create_target_group(**{**dict(
            Name=n, Protocol="TCP", Port=30080, VpcId=IDS["vpc"], TargetType="instance", HealthCheckProtocol="TCP",
            HealthCheckPort="traffic-port", HealthCheckIntervalSeconds=30, HealthyThresholdCount=3, UnhealthyThresholdCount=3,
            Tags=[{"Key": TAG, "Value": "owned"}]), **kw})["TargetGroups"][0]

    first = check("NLB: target group", lambda v: isinstance(v, dict) and v["Port"] == 30080 and v["HealthCheckIntervalSeconds"] == 30, lambda: group(f"k8s-verify-1-{RUN}"))
    one = first["TargetGroupArn"]
    check("NLB: the same group again answers the same", one, lambda: group(f"k8s-verify-1-{RUN}")["TargetGroupArn"])
    check("NLB: the same name, other port", "DuplicateTargetGroupName", lambda: group(f"k8s-verify-1-{RUN}", Port=30081))
    two = group(f"k8s-verify-2-{RUN}", HealthCheckProtocol="HTTP", HealthCheckPort="31000", HealthCheckPath="/healthz", HealthCheckIntervalSeconds=10)["TargetGroupArn"]
    listen = lambda target, port=80, **kw: elbv2.create_listener(  # noqa: E731
        LoadBalancerArn=arn, Protocol=kw.pop("Protocol", "TCP"), Port=port, DefaultActions=[{"Type": "forward", "TargetGroupArn": target}], **kw)["Listeners"][0]["ListenerArn"]
    listener = check("NLB: listener", lambda v: f":listener/net/{name}/" in v, lambda: listen(one))
    check("NLB: another listener on that port", "DuplicateListener", lambda: listen(two))
    check("NLB: groups by load balancer", [one], lambda: [g["TargetGroupArn"] for g in elbv2.describe_target_groups(LoadBalancerArn=arn)["TargetGroups"]])
    check("NLB: a group in use cannot go", "ResourceInUse", lambda: elbv2.delete_target_group(TargetGroupArn=one))
    check("NLB: point the listener elsewhere", two, lambda: elbv2.modify_listener(ListenerArn=listener, DefaultActions=[{"Type": "forward", "TargetGroupArn": two}])["Listeners"][0]["DefaultActions"][0]["TargetGroupArn"])
    check("NLB: a listener becomes UDP, and TCP again", ["UDP", "TCP"], lambda: [
        elbv2.modify_listener(ListenerArn=listener, Protocol=p)["Listeners"][0]["Protocol"] for p in ("UDP", "TCP")])
    check("NLB: the old group can go", 200, lambda: elbv2.delete_target_group(TargetGroupArn=one)["ResponseMetadata"]["HTTPStatusCode"])
    check("NLB: TLS listener", ("TLS", IDS["certificate"], "ELBSecurityPolicy-TLS13-1-2-2021-06"), lambda: (lambda l: (l["Protocol"], l["Certificates"][0]["CertificateArn"], l["SslPolicy"]))(
        elbv2.describe_listeners(ListenerArns=[listen(two, 443, Protocol="TLS", Certificates=[{"CertificateArn": IDS["certificate"]}], SslPolicy="ELBSecurityPolicy-TLS13-1-2-2021-06")])["Listeners"][0]))
    check("NLB: TLS listener without certificate", "CertificateNotFound", lambda: listen(two, 444, Protocol="TLS"))
    check("NLB: two listeners", [80, 443], lambda: sorted(x["Port"] for x in elbv2.describe_listeners(LoadBalancerArn=arn)["Listeners"]))
    check("NLB: change the health check", "/livez", lambda: elbv2.modify_target_group(TargetGroupArn=two, HealthCheckPath="/livez")["TargetGroups"][0]["HealthCheckPath"])

    put = lambda *t: elbv2.register_targets(TargetGroupArn=two, Targets=[{"Id": i, "Port": p} for i, p in t])  # noqa: E731
    health = lambda: sorted((h["Target"]["Id"], h["Target"]["Port"], h["TargetHealth"]["State"], h["TargetHealth"].get("Reason"))  # noqa: E731
                            for h in elbv2.describe_target_health(TargetGroupArn=two)["TargetHealthDescriptions"])
    check("NLB: targets", {(NODES[0], 30080), (NODES[1], 30080)}, lambda: (put((NODES[0], 30080), (NODES[1], 30080)), {h[:2] for h in health()})[1])
    check("NLB: one instance on two ports is two targets", 3, lambda: (put((NODES[0], 30081)), len(health()))[1])
    check("NLB: an unknown instance", "InvalidTarget", lambda: put(("i-0123456789abcdef0", 30080)))
    check("NLB: a deregistered target drains", True, lambda: (elbv2.deregister_targets(TargetGroupArn=two, Targets=[{"Id": NODES[1], "Port": 30080}]),
          (NODES[1], 30080, "draining", "Target.DeregistrationInProgress") in health())[1])
    check("NLB: registered again it is back", True, lambda: (put((NODES[1], 30080)), any(h[:2] == (NODES[1], 30080) and h[2] != "draining" for h in health()))[1])

    attributes = lambda: {a["Key"]: a["Value"] for a in elbv2.describe_load_balancer_attributes(LoadBalancerArn=arn)["Attributes"]}  # noqa: E731
    check("NLB: default attributes", ("false", "false", "false"), lambda: tuple(attributes().get(k) for k in (
        "load_balancing.cross_zone.enabled", "access_logs.s3.enabled", "deletion_protection.enabled")))
    check("NLB: cross-zone on", "true", lambda: (elbv2.modify_load_balancer_attributes(LoadBalancerArn=arn, Attributes=[{"Key": "load_balancing.cross_zone.enabled", "Value": "true"}]),
          attributes()["load_balancing.cross_zone.enabled"])[1])
    check("NLB: an unknown attribute is rejected", lambda v: v in ("ValidationError", "InvalidConfigurationRequest"), lambda: elbv2.modify_load_balancer_attributes(LoadBalancerArn=arn, Attributes=[{"Key": "colour", "Value": "red"}]))
    tg = lambda: {a["Key"]: a["Value"] for a in elbv2.describe_target_group_attributes(TargetGroupArn=two)["Attributes"]}  # noqa: E731
    check("NLB: group attributes a provider may change", ("true", "false"), lambda: (tg().get("preserve_client_ip.enabled"), tg().get("proxy_protocol_v2.enabled")))
    check("NLB: proxy protocol on", "true", lambda: (elbv2.modify_target_group_attributes(TargetGroupArn=two, Attributes=[{"Key": "proxy_protocol_v2.enabled", "Value": "true"}]), tg()["proxy_protocol_v2.enabled"])[1])

    guarded = elbv2.create_load_balancer(Name=f"averifysg{RUN}", Type="network", Subnets=[IDS["subnet-private-a"]], Scheme="internal", SecurityGroups=[IDS["sg-extra"]])["LoadBalancers"][0]
    check("NLB: internal, with groups", ("internal", [IDS["sg-extra"]]), lambda: (guarded["Scheme"], guarded["SecurityGroups"]))
    check("NLB: its groups can change", [IDS["sg-nodes"]], lambda: elbv2.set_security_groups(LoadBalancerArn=guarded["LoadBalancerArn"], SecurityGroups=[IDS["sg-nodes"]])["SecurityGroupIds"])
    check("NLB: pages", True, lambda: {name, f"averifysg{RUN}"} <= {d["LoadBalancerName"] for p in elbv2.get_paginator("describe_load_balancers").paginate(
        PaginationConfig={"PageSize": 1}) for d in p["LoadBalancers"]})
    check("NLB: elastic address per subnet", IDS["eip-a"], lambda: elbv2.create_load_balancer(
        Name=f"averifyeip{RUN}", Type="network", SubnetMappings=[{"SubnetId": IDS["subnet-public-a"], "AllocationId": IDS["eip-a"]}])["LoadBalancers"][0]["AvailabilityZones"][0]["LoadBalancerAddresses"][0]["AllocationId"])
    check("NLB: one unknown name of two", "LoadBalancerNotFound", lambda: elbv2.describe_load_balancers(Names=[name, "none"]))
    for n in (name, f"averifysg{RUN}", f"averifyeip{RUN}"):
        for found in [x for x in elbv2.describe_load_balancers()["LoadBalancers"] if x["LoadBalancerName"] == n]:
            elbv2.delete_load_balancer(LoadBalancerArn=found["LoadBalancerArn"])
    check("NLB: gone", "LoadBalancerNotFound", get)
    check("NLB: delete it again is accepted", 200, lambda: elbv2.delete_load_balancer(LoadBalancerArn=arn)["ResponseMetadata"]["HTTPStatusCode"])
    check("NLB: its listeners went with it", "ListenerNotFound", lambda: elbv2.describe_listeners(ListenerArns=[listener]))
    check("NLB: the group can go", 200, lambda: elbv2.delete_target_group(TargetGroupArn=two)["ResponseMetadata"]["HTTPStatusCode"])
    check("NLB: an unknown group", "TargetGroupNotFound", lambda: elbv2.describe_target_groups(TargetGroupArns=[two]))


def metadata():
    config = {"ec2_metadata_service_endpoint": METADATA + "/"}
    check("IMDS: region, by botocore", REGION, lambda: InstanceMetadataRegionFetcher(config=config).retrieve_region())
    check("IMDS: role credentials, by botocore", "node-role", lambda: InstanceMetadataFetcher(config=config).retrieve_iam_role_credentials()["role_name"])
    found = InstanceMetadataFetcher(config=config).retrieve_iam_role_credentials()
    check("IMDS: those credentials are accepted", True, lambda: bool(client("ec2", found["access_key"], found["secret_key"], found["token"]).describe_vpcs()["Vpcs"]))

    def get(path, token=True, method="GET", headers=None):
        headers = dict(headers or {})
        if token:
            ask = urllib.request.Request(f"{METADATA}/latest/api/token", method="PUT", headers={"X-aws-ec2-metadata-token-ttl-seconds": "60"})
            headers["X-aws-ec2-metadata-token"] = urllib.request.urlopen(ask).read().decode()
        try:
            return urllib.request.urlopen(urllib.request.Request(f"{METADATA}/latest/{path}", method=method, headers=headers)).read().decode()
        except urllib.error.HTTPError as e:
            return e.code

    check("IMDS: own instance id", IDS["control-plane-1"], lambda: get("meta-data/instance-id"))
    check("IMDS: identity document", (IDS["control-plane-1"], REGION), lambda: (lambda d: (d["instanceId"], d["region"]))(json.loads(get("dynamic/instance-identity/document"))))
    mac = get("meta-data/network/interfaces/macs/")
    check("IMDS: one interface, with a slash at the end", True, lambda: mac.count(":") == 5 and mac.endswith("/"))
    check("IMDS: its VPC", IDS["vpc"], lambda: get(f"meta-data/network/interfaces/macs/{mac}vpc-id"))
    check("IMDS: without a token", 401, lambda: get("meta-data/instance-id", token=False))
    check("IMDS: a token needs a time to live", 400, lambda: get("api/token", token=False, method="PUT"))
    check("IMDS: an unknown path", 404, lambda: get("meta-data/none"))


def faults():
    control("requests", "DELETE")
    control("faults", "POST", action="DescribeInstances", count=1, status=503, code="RequestLimitExceeded")
    check("throttled once", "RequestLimitExceeded", lambda: ec2.describe_instances())
    check("then not any more", True, lambda: bool(ec2.describe_instances()["Reservations"]))
    check("both are in the journal", [503, 200], lambda: [r["status"] for r in control("requests") if r["action"] == "DescribeInstances"])
    control("page-size", "POST", DescribeInstances=5)
    check("pages forced on a client that did not ask", True, lambda: bool(ec2.describe_instances().get("NextToken")))
    control("page-size", "DELETE")
    control("refused", "DELETE")
    raw("ec2", {"Action": "DescribeVpcs", "Colour": "red"})
    check("refused requests are listed", ["UnknownParameter"], lambda: [r["code"] for r in control("refused")])
    control("refused", "DELETE")
    check("the journal counts", 3, lambda: control("counts")["ec2.DescribeInstances"])

    node, shown = IDS["node-1"], lambda: ec2.describe_instances(InstanceIds=[IDS["node-1"]])["Reservations"][0]["Instances"][0]  # noqa: E731
    tagged = lambda: "fault" in {t["Key"] for t in shown().get("Tags", [])}  # noqa: E731
    tag = lambda: ec2.create_tags(Resources=[node], Tags=[{"Key": "fault", "Value": ""}])  # noqa: E731
    control("faults", "POST", action="CreateTags", drop=True)
    check("a dropped call has no response", lambda v: "Connection" in v, tag)
    check("... and no effect", False, tagged)
    control("faults", "POST", action="CreateTags", lost=True)
    check("a lost response", lambda v: "Connection" in v, tag)
    check("... of a call that was executed", True, tagged)
    ec2.delete_tags(Resources=[node], Tags=[{"Key": "fault"}])
    control("faults", "POST", action="*", after=1, count=None, body="<html>welcome</html>")
    check("a fault after one call", True, lambda: bool(ec2.describe_vpcs()["Vpcs"]))
    check("... with a body that is not XML", True, lambda: "<html>" in body_of("DescribeVpcs"))
    check("... lasts", True, lambda: "<html>" in body_of("DescribeVpcs"))
    control("faults", "DELETE")
    control("faults", "POST", count=2, empty=True)
    check("an empty response of EC2", [], lambda: ec2.describe_instances().get("Reservations", []))
    check("an empty response of ELB", [], lambda: elb.describe_load_balancers().get("LoadBalancerDescriptions", []))
    control("faults", "DELETE")
    control("faults", "POST", count=2, code={"ec2": "UnauthorizedOperation", "*": "AccessDenied"}, status=403)
    check("an error of EC2", "UnauthorizedOperation", lambda: ec2.describe_vpcs())
    check("the error of ELB in its place", "AccessDenied", lambda: elb.describe_load_balancers())
    check("a call through the control port, all pages", len(ec2.describe_subnets()["Subnets"]),
          lambda: len(control("call", "POST", api="ec2", operation="describe_subnets", parameters={})["Subnets"]))
    before = (shown()["PrivateIpAddress"], shown()["PrivateDnsName"])
    control(f"instances/{node}", "POST", ipv4=["10.9.0.9", "10.9.0.3"], private_dns_name="chosen", ipv6=["fd00::9"])
    check("addresses and name on demand", (["10.9.0.9", "10.9.0.3"], "chosen"), lambda: (
        [a["PrivateIpAddress"] for a in shown()["NetworkInterfaces"][0]["PrivateIpAddresses"]], shown()["PrivateDnsName"]))
    check("... and an IPv6 address", "fd00::9", lambda: shown()["NetworkInterfaces"][0]["Ipv6Addresses"][0]["Ipv6Address"])
    check("... and the filter finds the name", 1, lambda: len(ec2.describe_instances(Filters=[flt("private-dns-name", "chosen")])["Reservations"]))
    control(f"instances/{node}", "POST", ipv4=[before[0]], private_dns_name=before[1], ipv6=[])
    check("calls and writes are counted", True, lambda: control("totals")["calls"] > control("totals")["writes"] > 0)


def reset():
    """At the end, because it deletes everything."""
    ids = control("reset", "POST", cluster="other", instances=False)
    check("a reset creates the resources of a cluster", True, lambda: {"vpc", "rtb-nodes", "sg-nodes"} <= set(ids))
    check("... without instances", [], lambda: ec2.describe_instances()["Reservations"])
    check("... and clears the journal", 1, lambda: control("totals")["calls"])
    control("reset", "POST")


for part in (signatures, instances, groups, networks, classic, network, metadata, faults, reset):
    try:
        part()
    except Exception as e:  # noqa: BLE001 - the other parts still run
        FAILED.append(part.__name__)
        print(f"FAIL  {part.__name__} stopped: {type(e).__name__}: {e}")
print(f"{len(PASSED)}/{len(PASSED) + len(FAILED)}")
sys.exit(bool(FAILED))
