"""Creates the resources of a cluster."""

import functools
from datetime import datetime, timedelta, timezone

import boto3
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

REGION = "eu-west-1"
# The characters of the secret need escaping in URLs and shells, but no quotes.
ACCESS_KEY, SECRET_KEY = "AKIALOCALcluster0001", "local/secret+key/with/odd+characters0001"
ZONES = [REGION + letter for letter in "abc"]


@functools.cache  # creating a client takes long
def client(service, url):
    return boto3.client(service, region_name=REGION, endpoint_url=url,
                        aws_access_key_id=ACCESS_KEY, aws_secret_access_key=SECRET_KEY)


def tags(**kwargs):
    return [{"Key": k, "Value": v} for k, v in kwargs.items()]


def spec(kind, name, extra=()):
    return [{"ResourceType": kind, "Tags": tags(Name=name) + [{"Key": k, "Value": v} for k, v in extra]}]


def certificate():
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "demo.example.com")])
    now = datetime.now(timezone.utc)
    cert = (x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
            .serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=90)).sign(key, hashes.SHA256()))
    pem = serialization.Encoding.PEM
    return (cert.public_bytes(pem), key.private_bytes(pem, serialization.PrivateFormat.PKCS8,
                                                      serialization.NoEncryption()))


CERTIFICATE = []


def fill(url, cluster="demo", nodes=4, instances=True):
    """Creates the resources of a cluster, and returns their IDs by name."""
    ec2, tag = client("ec2", url), f"kubernetes.io/cluster/{cluster}"
    ids = {"cluster": cluster, "region": REGION}
    ids["vpc"] = vpc = ec2.create_vpc(CidrBlock="10.20.0.0/16", TagSpecifications=spec("vpc", cluster, [(tag, "shared")]))["Vpc"]["VpcId"]
    ec2.modify_vpc_attribute(VpcId=vpc, EnableDnsHostnames={"Value": True})
    ids["igw"] = igw = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=igw, VpcId=vpc)

    def subnet(name, cidr, zone, extra):
        ids[name] = ec2.create_subnet(VpcId=vpc, CidrBlock=cidr, AvailabilityZone=zone,
                                      TagSpecifications=spec("subnet", name, extra))["Subnet"]["SubnetId"]
        return ids[name]

    public, private = [], []
    for n, zone in enumerate(ZONES):
        public.append(subnet(f"subnet-public-{zone[-1]}", f"10.20.{n}.0/24", zone,
                             [(tag, "shared"), ("kubernetes.io/role/elb", "1")]))
        private.append(subnet(f"subnet-private-{zone[-1]}", f"10.20.{100 + n}.0/24", zone,
                              [(tag, "shared"), ("kubernetes.io/role/internal-elb", "1")]))
    # One of another cluster, and one without cluster tag.
    public.append(subnet("subnet-foreign-a", "10.20.50.0/24", ZONES[0], [("kubernetes.io/cluster/other", "owned")]))
    public.append(subnet("subnet-untagged-a", "10.20.51.0/24", ZONES[0], []))

    def table(name, extra, subnets):
        ids[name] = ec2.create_route_table(VpcId=vpc, TagSpecifications=spec("route-table", name, extra))["RouteTable"]["RouteTableId"]
        for s in subnets:
            ec2.associate_route_table(RouteTableId=ids[name], SubnetId=s)
        return ids[name]

    # Subnet private-c has no association: the VPC's main table decides for it.
    ec2.create_route(RouteTableId=table("rtb-public", [], public), DestinationCidrBlock="0.0.0.0/0", GatewayId=igw)
    table("rtb-nodes", [(tag, "owned")], private[:2])

    def group(name, extra):
        ids[name] = ec2.create_security_group(GroupName=name, Description=name, VpcId=vpc,
                                              TagSpecifications=spec("security-group", name, extra))["GroupId"]
        return ids[name]

    nodes_group, masters, extra = group("sg-nodes", [(tag, "owned")]), group("sg-masters", [(tag, "owned")]), group("sg-extra", [])

    ids["image"] = image = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]

    def instance(name, subnet_id, groups, extra, public_ip=False, kind="t3.medium"):
        nic = {"DeviceIndex": 0, "SubnetId": subnet_id, "Groups": groups, "AssociatePublicIpAddress": public_ip}
        made = ec2.run_instances(ImageId=image, InstanceType=kind, MinCount=1, MaxCount=1, NetworkInterfaces=[nic],
                                 TagSpecifications=spec("instance", name, extra))["Instances"][0]
        ids[name] = made["InstanceId"]
        ids[f"{name}/dns"] = made["PrivateDnsName"]
        return made

    if instances:
        add_instances(instance, nodes, public, private, (nodes_group, masters, extra), tag)
    if not CERTIFICATE:
        CERTIFICATE.extend(certificate())  # creating the key takes long
    cert, key = CERTIFICATE
    ids["certificate"] = client("acm", url).import_certificate(Certificate=cert, PrivateKey=key)["CertificateArn"]
    ids["eip-a"] = ec2.allocate_address(Domain="vpc")["AllocationId"]
    return ids


def add_instances(instance, nodes, public, private, groups, tag):
    nodes_group, masters, extra = groups
    instance("control-plane-1", private[0], [masters], [(tag, "owned")])
    for n in range(1, nodes + 1):
        zone = (n - 1) % 3
        # Every fourth node has a public address; node-3 has a second, untagged group.
        instance(f"node-{n}", public[zone] if n % 4 == 0 else private[zone],
                 [nodes_group, extra] if n == 3 else [nodes_group], [(tag, "owned")], public_ip=n % 4 == 0)
    instance("untagged", private[0], [extra], [])
    instance("hpc-1", private[0], [nodes_group], [(tag, "owned")], kind="hpc7a.12xlarge")
