"""AWS on loopback: EC2, ELB, ELBv2 and STS of moto, behind a proxy that checks requests.

    server.py FOLDER

Listens on four free ports, all in this process:

  endpoint   Every request needs a correct SigV4 signature, and may have only parameters
             that the model of the API (part of botocore) has.
  open       The same services without checks, for tests that prepare or read resources.
  metadata   The instance metadata service (IMDSv2 only) of the instance control-plane-1.
  control    The journal of requests, faults, page sizes, states of instances, reset.

Creates the resources of a cluster, and writes endpoints.json, ids.json, cloud.conf,
cloud-imds.conf and aws.env into FOLDER; endpoints.json is the last one.
"""

import collections
import hashlib
import hmac
import io
import json
import os
import re
import signal
import socket
import sys
import threading
import time
import traceback
import uuid
from datetime import datetime, timezone
from urllib.parse import parse_qsl, urlencode

import botocore.loaders
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import BotoCoreError, ClientError
from botocore.model import ServiceModel
from moto.core.base_backend import BackendDict
from moto.core import model_instances
from moto.ec2.models import amis
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import make_server

import corrections
import seed
from seed import ACCESS_KEY, REGION, SECRET_KEY

HOST = "127.0.0.1"

# One image is enough, and creating hundreds of them is most of the cost of a reset. While the
# variable is set, moto does not add those of the region.
del amis.AMIS[1:]
os.environ["MOTO_AMIS_PATH"] = os.devnull

SKEW = 15 * 60
SIGNING_NAMES = {"ec2": "ec2", "elb": "elasticloadbalancing", "elbv2": "elasticloadbalancing",
                 "sts": "sts"}
XMLNS = {"elb": "http://elasticloadbalancing.amazonaws.com/doc/2012-06-01/",
         "elbv2": "http://elasticloadbalancing.amazonaws.com/doc/2015-12-01/",
         "sts": "https://sts.amazonaws.com/doc/2011-06-15/"}


class Rejected(Exception):
    """An error response of the proxy."""

    def __init__(self, status, code, message):
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


def error_body(api, code, message):
    request_id = str(uuid.uuid4())
    message = message.replace("&", "&amp;").replace("<", "&lt;")
    if api == "ec2":
        return (f'<?xml version="1.0" encoding="UTF-8"?>\n<Response><Errors><Error><Code>{code}</Code>'
                f"<Message>{message}</Message></Error></Errors><RequestID>{request_id}</RequestID></Response>")
    return (f'<ErrorResponse xmlns="{XMLNS.get(api, XMLNS["sts"])}"><Error><Type>Sender</Type><Code>{code}</Code>'
            f"<Message>{message}</Message></Error><RequestId>{request_id}</RequestId></ErrorResponse>")


# --- the API models ----------------------------------------------------------

class Model:
    """Parameters of the requests of one API, from the model in botocore."""

    def __init__(self, api):
        loader = botocore.loaders.Loader()
        self.api = api
        self.service = ServiceModel(loader.load_service_model(api, "service-2"), api)
        self.version = self.service.api_version
        self.ec2 = self.service.protocol == "ec2"
        self.documented = {}

    def check(self, params):
        action = params.get("Action", "")
        if action not in self.service.operation_names:
            raise Rejected(400, "InvalidAction", f"The action {action} is not valid for this web service.")
        shape = self.service.operation_model(action).input_shape
        given = set()
        for name, value in params.items():
            if name in ("Action", "Version"):
                continue
            if shape is None:
                raise self.unknown(name)
            self.walk(shape, name.split("."), name, value)
            given.add(name.split(".")[0])
        for member in shape.required_members if shape else []:
            wire = self.wire_name(shape.members[member], member)
            if wire not in given:
                raise Rejected(400, "MissingParameter" if self.ec2 else "ValidationError",
                              f"The request must contain the parameter {wire}")

    def filters(self, action):
        """The filter names that the API's documentation lists for an action."""
        if action not in self.documented:
            shape = self.service.operation_model(action).input_shape
            text = shape.members["Filters"].documentation if shape and "Filters" in shape.members else ""
            self.documented[action] = set(re.findall(r"<code>([^<]+)</code>\s*[-\u2013]", text))
        return self.documented[action]

    def unknown(self, name):
        return Rejected(400, "UnknownParameter" if self.ec2 else "MalformedInput",
                       f"The parameter {name} is not recognized")

    def wire_name(self, shape, member):
        if not self.ec2:
            return shape.serialization.get("name", member)
        if "queryName" in shape.serialization:
            return shape.serialization["queryName"]
        name = shape.serialization.get("name", member)
        return name[0].upper() + name[1:]

    def walk(self, shape, path, name, value):
        kind = shape.type_name
        if kind == "structure":
            for member, inner in shape.members.items():
                if path and self.wire_name(inner, member) == path[0]:
                    return self.walk(inner, path[1:], name, value)
            raise self.unknown(name)
        if kind == "list":
            if not path and value == "":
                return None  # an empty list in the query protocol
            if not self.ec2:
                if not path or path[0] != shape.member.serialization.get("name", "member"):
                    raise self.unknown(name)
                path = path[1:]
            if not path or not path[0].isdigit() or int(path[0]) < 1:
                raise self.unknown(name)
            return self.walk(shape.member, path[1:], name, value)
        if path:
            raise self.unknown(name)
        if kind in ("integer", "long") and not re.fullmatch(r"-?\d+", value):
            raise Rejected(400, "InvalidParameterValue", f"Invalid value '{value}' for {name}: not an integer")
        if kind == "boolean" and value not in ("true", "false"):
            raise Rejected(400, "InvalidParameterValue", f"Invalid value '{value}' for {name}: not a boolean")
        return None


MODELS = {api: Model(api) for api in ("ec2", "elb", "elbv2", "sts")}


# --- signatures --------------------------------------------------------------

class Keys:
    """Secret and session token of each access key. Roles add temporary keys."""

    def __init__(self):
        self.known = {ACCESS_KEY: (SECRET_KEY, None)}

    def learn(self, xml):
        """Adds the credentials in a response to AssumeRole."""
        found = [re.search(f"<{tag}>([^<]*)</{tag}>", xml)
                 for tag in ("AccessKeyId", "SecretAccessKey", "SessionToken")]
        if all(found):
            self.known[found[0][1]] = (found[1][1], found[2][1])

    def temporary(self):
        key, secret, token = "ASIA" + uuid.uuid4().hex[:16].upper(), uuid.uuid4().hex, uuid.uuid4().hex * 4
        self.known[key] = (secret, token)
        return key, secret, token


def check_signature(api, keys, method, url, headers, body):
    """Compares the signature with the one of botocore's signer."""
    ec2 = api == "ec2"

    def reject(code, message, status=403):
        if ec2 and code in ("SignatureDoesNotMatch", "InvalidClientTokenId"):
            code, message, status = "AuthFailure", f"AWS was not able to validate the provided access credentials: {message}", 401
        raise Rejected(status, code, message)

    header = headers.get("authorization", "")
    found = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/,]+)/(\d{8})/([^/,]+)/([^/,]+)/aws4_request, ?"
                         r"SignedHeaders=([^,]+), ?Signature=([0-9a-f]{64})", header)
    if not header:
        reject("MissingAuthenticationToken", "Request is missing Authentication Token")
    if not found:
        reject("IncompleteSignature", f"Authorization header cannot be parsed: {header[:80]}", 400)
    key, date, region, service, signed, signature = found.groups()

    stamp = headers.get("x-amz-date", "")
    if not re.fullmatch(r"\d{8}T\d{6}Z", stamp):
        reject("IncompleteSignature", "Authorization header requires existence of either a 'X-Amz-Date' header", 400)
    then = datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
    if abs((datetime.now(timezone.utc) - then).total_seconds()) > SKEW:
        reject("RequestExpired" if ec2 else "SignatureDoesNotMatch",
               f"Signature expired or not yet valid: {stamp}", 400 if ec2 else 403)
    if date != stamp[:8]:
        reject("SignatureDoesNotMatch", "Date in Credential scope does not match YYYYMMDD from X-Amz-Date")
    if service != SIGNING_NAMES[api]:
        reject("SignatureDoesNotMatch", f"Credential should be scoped to correct service: '{SIGNING_NAMES[api]}'.")
    if region != REGION:
        reject("SignatureDoesNotMatch", f"Credential should be scoped to a valid region, not '{region}'.")
    names = signed.split(";")
    must = ["host"] + [h for h in headers if h.startswith("x-amz-")]
    missing = [h for h in must if h not in names]
    if missing or names != sorted(names):
        reject("SignatureDoesNotMatch", f"SignedHeaders must be sorted and contain {missing or must}")
    absent = [h for h in names if h not in headers]
    if absent:
        reject("SignatureDoesNotMatch", f"SignedHeaders names absent headers {absent}")
    if key not in keys.known:
        reject("InvalidClientTokenId", "The security token included in the request is invalid.")
    secret, token = keys.known[key]
    if headers.get("x-amz-security-token") != token:
        reject("InvalidClientTokenId", "The security token included in the request is invalid")
    digest = headers.get("x-amz-content-sha256")
    if digest and digest != hashlib.sha256(body).hexdigest():
        reject("SignatureDoesNotMatch", "x-amz-content-sha256 is not the digest of the body")

    signer = SigV4Auth(Credentials(key, secret, token), service, region)
    request = AWSRequest(method, url, {h: headers[h] for h in names}, body)
    request.context["timestamp"] = stamp
    canonical = signer.canonical_request(request)
    if not hmac.compare_digest(signer.signature(signer.string_to_sign(request, canonical), request), signature):
        reject("SignatureDoesNotMatch",
               "The request signature we calculated does not match the signature you provided. "
               f"The canonical string should have been {canonical!r}")


# --- the checking proxy ------------------------------------------------------

class State:
    """What the control port shows and changes."""

    def __init__(self):
        self.lock = threading.Lock()
        self.refused = collections.deque(maxlen=1_000)   # see Control; a reset keeps it
        self.clear()

    def clear(self):
        with self.lock:
            self.journal = collections.deque(maxlen=100_000)
            self.calls = self.writes = 0
            self.faults = []           # see Proxy.fail
            self.page_size = {}        # maximum size of a page by action

    def add(self, entry):
        with self.lock:
            self.journal.append(entry)
            self.calls += 1
            self.writes += is_write(entry["action"])

    def fault_for(self, action):
        """Returns the first fault for this action, and counts its use."""
        with self.lock:
            for fault in self.faults:
                if fault["action"] not in ("*", action) or fault["count"] == 0:
                    continue
                if fault["after"] > 0:
                    fault["after"] -= 1
                    continue
                if fault["count"] is not None:
                    fault["count"] -= 1
                return fault
        return None


def is_write(action):
    return not (action or "").startswith(("Describe", "Get", "AssumeRole"))


class Proxy:
    def __init__(self, app, keys, state, as_is):
        self.app, self.keys, self.state, self.as_is = app, keys, state, as_is

    def __call__(self, environ, start_response):
        began = time.time()
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        headers = {k[5:].replace("_", "-").lower(): v.strip() for k, v in environ.items() if k.startswith("HTTP_")}
        for k in ("CONTENT_TYPE", "CONTENT_LENGTH"):
            if environ.get(k):
                headers[k.replace("_", "-").lower()] = environ[k]
        query = environ.get("QUERY_STRING", "")
        pairs = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)
        pairs += parse_qsl(query, keep_blank_values=True)
        params = dict(pairs)
        api = next((a for a, m in MODELS.items() if m.version == params.get("Version")), None)
        entry = {"at": began, "api": api, "action": params.get("Action"), "agent": headers.get("user-agent", ""),
                 "params": {k: v for k, v in params.items() if k not in ("Action", "Version")}}
        fault = None
        try:
            fault = self.state.fault_for(params.get("Action"))
            response = self.fail(fault, api, params.get("Action"), environ, entry) if fault else None
            if response is None:
                self.admit(entry, environ, api, params, pairs, query, headers, body)
                response = self.respond(environ, api, params)
        except Rejected as error:
            response = (f"{error.status} {error.code}", [("Content-Type", "text/xml;charset=UTF-8")],
                        error_body(api, error.code, error.message).encode())
            entry["rejected"] = error.message
        if fault and fault.get("lost"):
            self.drop(environ, entry)
        status, out_headers, data = response
        entry["status"] = int(status.split()[0])
        if entry["status"] >= 400:
            found = re.search(r"<Code>([^<]*)</Code>", data.decode("utf-8", "replace"))
            entry["code"] = found[1] if found else None
        entry["seconds"] = round(time.time() - began, 4)
        self.state.add(entry)
        out_headers = [(k, v) for k, v in out_headers if k.lower() not in ("content-length", "connection")]
        start_response(status, out_headers + [("Content-Length", str(len(data)))])
        return [data]

    def admit(self, entry, *request):
        """Runs the checks, and records a request that they reject."""
        try:
            self.check(*request)
        except Rejected as error:
            self.state.refused.append({"action": entry["action"], "code": error.code, "message": error.message})
            raise

    def check(self, environ, api, params, pairs, query, headers, body):
        """Checks the signature and the parameters."""
        if api is None:
            raise Rejected(400, "InvalidAction", "No API has this version: "
                           f"Action={params.get('Action')} Version={params.get('Version')}")
        url = f"http://{headers.get('host')}{environ.get('RAW_URI') or environ['PATH_INFO']}"
        if query and "?" not in url:
            url += "?" + query
        check_signature(api, self.keys, environ["REQUEST_METHOD"], url, headers, body)
        if len(params) != len(pairs):
            raise Rejected(400, "MalformedQueryString", "A parameter occurs twice")
        MODELS[api].check(params)

    def respond(self, environ, api, params):
        """Returns the response of the corrections, or of moto."""
        if not self.as_is:
            try:
                answer = corrections.before(api, params, REGION, MODELS[api].filters(params["Action"]))
            except corrections.Reject as error:
                raise Rejected(error.status, error.code, error.message) from None
            if answer is not None:
                return "200 OK", [("Content-Type", "text/xml;charset=UTF-8")], answer.encode()
        return self.forward(environ, api, params)

    def fail(self, fault, api, action, environ, entry):
        """Applies a fault; None if moto responds anyway."""
        entry["fault"] = True
        time.sleep(fault.get("delay", 0))
        if fault.get("drop"):
            self.drop(environ, entry)
        fault = {key: of_api(value, api) for key, value in fault.items()}
        headers = list(fault.get("headers", {}).items())
        if fault.get("code"):
            body = error_body(api, fault["code"], fault.get("message", fault["code"]))
            return f"{fault.get('status', 400)} Fault", [("Content-Type", "text/xml;charset=UTF-8")] + headers, body.encode()
        if "body" in fault:
            return f"{fault.get('status', 200)} Fault", [("Content-Type", "text/html")] + headers, fault["body"].encode()
        if fault.get("empty"):
            return "200 OK", [("Content-Type", "text/xml;charset=UTF-8")], empty_body(api, action).encode()
        return None

    def drop(self, environ, entry):
        """Closes the connection without a response."""
        entry["status"] = 0
        self.state.add(entry)
        connection = environ.get("werkzeug.socket")
        if connection is not None:
            connection.shutdown(socket.SHUT_RDWR)
        raise ConnectionResetError("fault")

    def forward(self, environ, api, params):
        action = params["Action"]
        cap = self.state.page_size.get(action)
        name = {"ec2": "MaxResults"}.get(api, "PageSize")
        if cap and name not in params and not any(k.startswith(("InstanceId.", "LoadBalancer")) for k in params):
            params = {**params, name: str(cap)}
        elif cap and name in params:
            params = {**params, name: str(min(cap, int(params[name])))}
        body = urlencode(params).encode()
        environ.update({"REQUEST_METHOD": "POST", "QUERY_STRING": "", "wsgi.input": io.BytesIO(body),
                        "CONTENT_LENGTH": str(len(body)), "CONTENT_TYPE": "application/x-www-form-urlencoded; charset=utf-8"})
        captured = {}

        def start(status, headers, exc_info=None):
            captured["status"], captured["headers"] = status, headers

        try:
            data = b"".join(self.app(environ, start))
        except Exception:  # noqa: BLE001 - an exception of moto is a response with status 500
            traceback.print_exc()
            captured["status"], data = "500 Internal Server Error", b""
        if captured["status"].startswith("500") and b"<Error>" not in data:
            if "NextToken" in params or "Marker" in params:
                raise Rejected(400, "InvalidParameterValue", "Unable to parse pagination token")
            raise Rejected(500, "InternalError", f"moto cannot run {action}; the log of the server says why")
        if action.startswith("AssumeRole") and captured["status"].startswith("200"):
            self.keys.learn(data.decode())
        return captured["status"], captured["headers"], data


def of_api(value, api):
    """A field of a fault: the same for all APIs, or an object with values by API, and "*" for the others."""
    if isinstance(value, dict) and "*" in value:
        return value.get(api, value["*"])
    return value


def empty_body(api, action):
    """A response without any resource."""
    if api == "ec2":
        return (f'<?xml version="1.0" encoding="UTF-8"?>\n<{action}Response xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
                f"<requestId>{uuid.uuid4()}</requestId></{action}Response>")
    return (f'<{action}Response xmlns="{XMLNS.get(api, XMLNS["sts"])}"><{action}Result/>'
            f"<ResponseMetadata><RequestId>{uuid.uuid4()}</RequestId></ResponseMetadata></{action}Response>")


# --- instance metadata -------------------------------------------------------

class Metadata:
    """IMDSv2: reads need a token. The values are those of the instance."""

    def __init__(self, keys, own_instance):
        self.keys, self.own_instance, self.tokens, self.role = keys, own_instance, {}, None

    def __call__(self, environ, start_response):
        status, text = self.answer(environ)
        kind = "application/json" if text.startswith("{") else "text/plain"
        data = text.encode()
        start_response(status, [("Content-Type", kind), ("Content-Length", str(len(data)))])
        return [data]

    def answer(self, environ):
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if path == "/latest/api/token":
            if method != "PUT":
                return "405 Not Allowed", ""
            ttl = environ.get("HTTP_X_AWS_EC2_METADATA_TOKEN_TTL_SECONDS", "")
            if environ.get("HTTP_X_FORWARDED_FOR"):
                return "403 Forbidden", ""
            if not ttl.isdigit() or not 1 <= int(ttl) <= 21600:
                return "400 Bad Request", ""
            token = uuid.uuid4().hex
            self.tokens[token] = time.time() + int(ttl)
            return "200 OK", token
        if self.tokens.get(environ.get("HTTP_X_AWS_EC2_METADATA_TOKEN"), 0) < time.time():
            return "401 Unauthorized", ""
        values = self.values()
        path = re.sub(r"^/latest/", "", path)
        if path.rstrip("/") in values:
            return "200 OK", values[path.rstrip("/")]
        folder = path.rstrip("/") + "/"
        below = {k[len(folder):] for k in values if k.startswith(folder)}
        names = sorted({n if "/" not in n else n.split("/")[0] + "/" for n in below})
        return ("200 OK", "\n".join(names)) if names else ("404 Not Found", "")

    def values(self):
        i = self.own_instance()
        if i is None:
            return {}
        nic = next(iter(i.nics.values()))
        mac = nic.mac_address
        zone = corrections.cloud(REGION).get_subnet(i.subnet_id).availability_zone
        if self.role is None or self.role[1] < time.time() + 300:
            self.role = (self.keys.temporary(), time.time() + 3600)
        (key, secret, token), until = self.role
        return {
            "meta-data/instance-id": i.id,
            "meta-data/instance-type": i.instance_type,
            "meta-data/local-hostname": i.private_dns_name,
            "meta-data/hostname": i.private_dns_name,
            "meta-data/local-ipv4": i.private_ip,
            "meta-data/mac": mac,
            "meta-data/placement/availability-zone": zone,
            "meta-data/placement/region": REGION,
            "meta-data/services/domain": "amazonaws.com",
            f"meta-data/network/interfaces/macs/{mac}/vpc-id": i.vpc_id,
            f"meta-data/network/interfaces/macs/{mac}/subnet-id": i.subnet_id,
            f"meta-data/network/interfaces/macs/{mac}/local-ipv4s": i.private_ip,
            "meta-data/iam/security-credentials/node-role": json.dumps({
                "Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": key, "SecretAccessKey": secret, "Token": token,
                "LastUpdated": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
                "Expiration": datetime.fromtimestamp(until, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")}),
            "dynamic/instance-identity/document": json.dumps({
                "accountId": "123456789012", "architecture": "x86_64", "availabilityZone": zone,
                "instanceId": i.id, "instanceType": i.instance_type, "privateIp": i.private_ip,
                "region": REGION, "version": "2017-09-30"}),
        }


# --- control -----------------------------------------------------------------

class Control:
    def __init__(self, state, reset, call):
        self.state, self.reset, self.call = state, reset, call

    def __call__(self, environ, start_response):
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"].strip("/")
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        try:
            result, status = self.respond(method, path, json.loads(body or b"{}")), "200 OK"
        except ClientError as e:
            result, status = e.response["Error"], "400 Bad Request"
        except (KeyError, ValueError, TypeError, BotoCoreError) as e:
            result, status = {"Code": type(e).__name__, "Message": str(e)}, "400 Bad Request"
        data = json.dumps(result, indent=1, default=str).encode()
        start_response(status, [("Content-Type", "application/json"), ("Content-Length", str(len(data)))])
        return [data]

    def respond(self, method, path, body):
        state = self.state
        if path == "requests":
            if method == "DELETE":
                state.journal.clear()
            return list(state.journal)
        if path == "refused":
            if method == "DELETE":
                state.refused.clear()
            return list(state.refused)
        if path == "counts":
            return collections.Counter(f"{e['api']}.{e['action']}" for e in list(state.journal))
        if path == "totals":
            return {"calls": state.calls, "writes": state.writes}
        if path == "faults":
            if method == "DELETE":
                state.faults = []
            elif method == "POST":
                faults = body if isinstance(body, list) else [body]
                state.faults = state.faults + [{"action": "*", "count": 1, "after": 0, **fault} for fault in faults]
            return state.faults
        if path == "page-size":
            if method == "POST":
                state.page_size.update(body)
            elif method == "DELETE":
                state.page_size.clear()
            return state.page_size
        if path.startswith("instances/") and method == "POST":
            return corrections.set_instance(path.split("/")[1], body, REGION)
        if path == "settings":
            if method == "POST":
                corrections.settings.update(body)
            return corrections.settings
        if path == "reset" and method == "POST":
            return self.reset(**body)
        if path == "call" and method == "POST":
            return self.call(**body)
        raise KeyError(f"{method} /{path}")


# --- files for tests ---------------------------------------------------------

def write(folder, name, text):
    """Writes a file at once, so that readers never see a part of it."""
    path = os.path.join(folder, name)
    with open(path + ".new", "w", opener=lambda file, flags: os.open(file, flags, 0o600)) as f:
        f.write(text)
    os.replace(path + ".new", path)


def overrides(services):
    return "".join(f'\n[ServiceOverride "{n}"]\nService = {service}\nRegion = {REGION}\nURL = {url}\nSigningRegion = {REGION}\n'
                   for n, (service, url) in enumerate(services, 1))


def write_files(folder, endpoints, ids):
    services = [(name, endpoints["endpoint"]) for name in ("EC2", "Elastic Load Balancing", "Elastic Load Balancing v2", "STS")]
    # For a manager that does not run on an instance ...
    write(folder, "cloud.conf", f"[Global]\nRegion = {REGION}\nVPC = {ids['vpc']}\nSubnetID = {ids['subnet-private-a']}\n"
          f"KubernetesClusterID = {ids['cluster']}\n" + overrides(services))
    # ... and for one that asks the metadata service.
    write(folder, "cloud-imds.conf", "[Global]\n" + overrides(services + [("ec2imds", endpoints["metadata"])]))
    write(folder, "aws.env", "".join(f"export {name}={value}\n" for name, value in (
        ("AWS_ACCESS_KEY_ID", ACCESS_KEY), ("AWS_SECRET_ACCESS_KEY", SECRET_KEY), ("AWS_REGION", REGION), ("AWS_DEFAULT_REGION", REGION),
        ("AWS_ENDPOINT_URL", endpoints["endpoint"]), ("AWS_EC2_METADATA_SERVICE_ENDPOINT", endpoints["metadata"]))))
    write(folder, "ids.json", json.dumps(ids, indent=1))
    write(folder, "endpoints.json", json.dumps(endpoints, indent=1))


def main(folder):
    as_is = os.environ.get("BOWLINE_MOTO_AS_IS") == "1"
    if not as_is:
        corrections.apply()
    keys, state = Keys(), State()
    app = DomainDispatcherApplication(create_backend_app)

    def own_instance():
        found = (i for i in corrections.all_instances(REGION).values()
                 if any(t["key"] == "Name" and t["value"] == "control-plane-1" for t in i.get_tags()))
        return next(found, None)

    def reset(**options):
        """Deletes all resources, and creates those of a cluster. The options are those of seed.fill."""
        model_instances.reset_model_data()
        BackendDict.reset()
        corrections.settings.update(corrections.DEFAULTS)
        ids = seed.fill(endpoints["open"], **options)
        write_files(folder, endpoints, ids)
        state.clear()
        return ids

    clients = {}

    def call(api, operation, parameters):
        """Calls an API with boto3 on the port without checks, and returns all pages of the response."""
        client = clients.setdefault(api, seed.client(api, endpoints["open"]))
        if client.can_paginate(operation):
            return client.get_paginator(operation).paginate(**parameters).build_full_result()
        return getattr(client, operation)(**parameters)

    class Quiet(MotoRequestHandler):
        protocol_version = "HTTP/1.1"  # keep-alive, as in AWS

        def log_request(self, *args):
            pass

    apps = {"endpoint": Proxy(app, keys, state, as_is), "open": app,
            "metadata": Metadata(keys, own_instance), "control": Control(state, reset, call)}
    servers = {name: make_server(HOST, 0, a, threaded=True, request_handler=Quiet) for name, a in apps.items()}
    endpoints = {name: f"http://{HOST}:{server.port}" for name, server in servers.items()}
    for server in servers.values():
        threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoints.update({"region": REGION, "access_key": ACCESS_KEY, "secret_key": SECRET_KEY})
    reset()
    print(f"listening on {', '.join(f'{name} {server.port}' for name, server in servers.items())}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    threading.Event().wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
