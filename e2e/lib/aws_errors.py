"""Errors of AWS in the shape of each service's protocol."""

import json

XML_PROTOCOLS = {"ec2", "iam", "sts"}


def throttling(service):
    message = "Rate exceeded"
    return {
        "ec2": (503, "RequestLimitExceeded", "Request limit exceeded."),
        "iam": (400, "Throttling", message),
        "sts": (400, "Throttling", message),
        "sqs": (400, "RequestThrottled", message),
        "eks": (429, "ThrottlingException", message),
    }.get(service, (400, "ThrottlingException", message))


def refusal(service, status, code, message):
    """An error as the service's protocol has it."""
    if service == "ec2":
        body = (f"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Response><Errors><Error><Code>{code}</Code>"
                f"<Message>{message}</Message></Error></Errors><RequestID>fault</RequestID></Response>")
        return status, [("Content-Type", "text/xml")], body.encode()
    if service in XML_PROTOCOLS:
        whose = "Sender" if status < 500 else "Receiver"
        body = (f"<ErrorResponse><Error><Type>{whose}</Type><Code>{code}</Code><Message>{message}</Message></Error>"
                "<RequestId>fault</RequestId></ErrorResponse>")
        return status, [("Content-Type", "text/xml")], body.encode()
    if service == "eks":
        headers = [("Content-Type", "application/json"), ("x-amzn-errortype", code)]
        return status, headers, json.dumps({"message": message}).encode()
    space = "com.amazonaws.sqs#" if service == "sqs" else ""
    body = json.dumps({"__type": space + code, "message": message}).encode()
    return status, [("Content-Type", "application/x-amz-json-1.1")], body
