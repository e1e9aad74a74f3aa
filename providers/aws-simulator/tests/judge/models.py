"""Compares XML answers with the API models of botocore: unknown elements, and error codes that an operation does not have."""

import re
from xml.etree import ElementTree

# Errors that every operation of ELB, ELBv2 and STS may return, which the models do not list.
COMMON = {"ValidationError", "AccessDenied", "InvalidAction", "UnknownParameter", "InvalidClientTokenId", "ExpiredToken",
          "SignatureDoesNotMatch", "MissingAuthenticationToken", "IncompleteSignature", "Throttling", "InvalidParameterValue"}
# Elements that the services send and the models do not have.
EXTRA = {"requestId", "ResponseMetadata", "return"}


def differences(operation, body):
    """Elements of an answer that the model of the operation does not have."""
    root = ElementTree.fromstring(body)
    wrapper = operation.output_shape and operation.output_shape.serialization.get("resultWrapper")
    if operation.service_model.metadata["protocol"] != "ec2":
        wrapper = wrapper or f"{operation.name}Result"
        root = next((child for child in root if local(child) == wrapper), None)
        if root is None:
            return [f"{operation.name}: no {wrapper}"]
    return [f"{operation.name}: {text}" for text in unknown(root, operation.output_shape, operation.name)]


def local(element):
    return re.sub(r"{[^}]*}", "", element.tag)


def unknown(element, shape, path):
    if shape is None:
        yield from (f"unknown element {path}.{local(child)}" for child in element if local(child) not in EXTRA)
    elif shape.type_name == "structure":
        members = {member.serialization.get("name", name): member for name, member in shape.members.items()}
        for child in element:
            name = local(child)
            if name in members:
                yield from unknown(child, members[name], f"{path}.{name}")
            elif name not in EXTRA:
                yield f"unknown element {path}.{name}"
    elif shape.type_name == "list":
        item = shape.member.serialization.get("name", "member")
        for child in element:
            if local(child) != item:
                yield f"{path} has the item {local(child)}, not {item}"
            yield from unknown(child, shape.member, path + "[]")
    elif len(element):
        yield f"{path} has elements, but is of type {shape.type_name}"


def error(operation, code):
    """Text if an operation does not have this error; the model of EC2 lists none."""
    if operation.service_model.metadata["protocol"] == "ec2" or code in COMMON:
        return None
    codes = {shape.error_code or shape.name for shape in operation.error_shapes}
    return None if code in codes else f"{operation.name}: error {code} is not one of {sorted(codes)}"
