"""A proxy in front of a simulator of AWS that injects faults: throttling, errors, lost requests and responses, slow responses,
and responses in many small pages. The faults of each call depend on a seed.

    fault_proxy.py --upstream http://127.0.0.1:5000 --port 5001 --seed 1 [--throttle 0.1 ...] [--capture FILE]

--capture appends every request to a file for wire_model.py, one JSON object per line. stand_in.py responds to calls that moto
does not implement; PUT /stand-in replaces parts of its state. ec2_rules.py rejects requests that EC2 would reject but moto
accepts. --hide simulates eventual consistency (consistency.py).

GET /faults returns the number of calls by fault; GET /callers the number of calls by access key, region and service;
GET /actions the number of calls by action; all as JSON. PUT /refused sets the actions that are rejected from now on, such as
{"ec2:DescribeSubnets": "UnauthorizedOperation"}. The proxy uses only the wire protocol of the simulator.
"""

import argparse
import collections
import http.client
import http.server
import json
import random
import re
import socket
import ssl
import struct
import sys
import threading
import time
import urllib.parse
import xml.etree.ElementTree as ElementTree

import buckets
import consistency
import ec2_rules
import reserved_instances
import stand_in
import wire_model
from aws_errors import XML_PROTOCOLS, refusal, throttling

# Lists that AWS returns in pages, with the element name of the list.
EC2_LISTS = {
    "DescribeInstanceTypes": "instanceTypeSet", "DescribeInstanceTypeOfferings": "instanceTypeOfferingSet",
    "DescribeSpotPriceHistory": "spotPriceHistorySet", "DescribeSubnets": "subnetSet",
    "DescribeSecurityGroups": "securityGroupInfo", "DescribeImages": "imagesSet",
    "DescribeLaunchTemplates": "launchTemplates", "DescribeInstances": "reservationSet",
    "DescribeInstanceStatus": "instanceStatusSet",
}
# Small enough for several pages of every list, large enough to avoid hundreds.
PAGE_SIZES = {"DescribeInstanceTypes": 150, "DescribeInstanceTypeOfferings": 700, "DescribeSpotPriceHistory": 2000,
              "DescribeImages": 300}
PAGE_SIZE = 2
# Instance types and offerings do not change, and moto needs seconds to list them.
CACHED_ACTIONS = {"DescribeInstanceTypes", "DescribeInstanceTypeOfferings"}
# For scenarios that wait until all prices are read.
PRICE_LISTS = {"GetProducts", "DescribeSpotPriceHistory"}
# Without it moto returns fewer templates and no token for the rest.
MOTO_TEMPLATES_MAX = "200"
IAM = "https://iam.amazonaws.com/doc/2010-05-08/"


class Faults:
    """Selects the fault of a call, records injected faults, and holds responses with further pages."""

    def __init__(self, ratios, seed):
        self.ratios, self.random = ratios, random.Random(seed)
        self.counts, self.callers, self.actions = (collections.Counter() for _ in range(3))
        self.pages, self.cached, self.refused, self.lock = {}, {}, {}, threading.Lock()
        self.stand_in, self.captured_to = stand_in.StandIn(), None
        self.reserved = reserved_instances.ReservedInstances(self.stand_in)
        # Data of the created launch templates, by name.
        self.templates, self.consistency, self.buckets, self.page_size = {}, consistency.Consistency(0), None, None

    def deal(self, service, action):
        with self.lock:
            point = self.random.random()
            for fault, ratio in self.ratios.items():
                point -= ratio
                if point < 0:
                    self.counts[f"{service} {action} {fault}"] += 1
                    return fault, self.random.random()
            return None, 0.0

    def count(self, what):
        with self.lock:
            self.counts[what] += 1


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    faults = None
    upstream = None
    moto_region = None

    def log_message(self, *_):
        pass

    def do_GET(self):
        counters = {"/faults": self.faults.counts, "/callers": self.faults.callers,
                    "/actions": self.faults.actions}.get(self.path)
        if counters is not None:
            with self.faults.lock:
                body = json.dumps(counters).encode()
            return self.reply(200, [("Content-Type", "application/json")], body)
        return self.handle_call()

    def do_POST(self):
        return self.handle_call()

    do_PUT = do_DELETE = do_POST

    def handle_call(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if (self.command, self.path) == ("PUT", "/refused"):
            self.faults.refused = json.loads(body)
            return self.reply(200, [], b"")
        if (self.command, self.path) == ("PUT", "/stand-in"):
            self.faults.stand_in.replace(json.loads(body))
            return self.reply(200, [], b"")
        service, action, form = self.recognise(body)
        captured = self.capture(service, body)
        with self.faults.lock:
            self.faults.actions[f"{service}:{action}"] += 1
        refused = self.faults.refused.get(f"{service}:{action}")
        if refused:
            return self.refuse(service, 403, refused, "You are not authorized to perform this operation.")
        fault, how_much = self.faults.deal(service, action)
        if fault == "throttle":
            return self.refuse(service, *throttling(service))
        if fault == "error":
            codes = ("InternalError", "InternalFailure") if service == "ec2" else ("InternalFailure",) * 2
            status, code = ((500, codes[0]), (503, "Unavailable"))[how_much < 0.5]
            return self.refuse(service, status, code, "An internal error has occurred")
        if fault == "lost_request":
            return self.reset()
        if fault == "slow":
            time.sleep(how_much * 3)
        answer = self.answer(captured, form, body)
        if fault == "lost_answer":
            return self.reset()
        return self.reply(*answer)

    def recognise(self, body):
        """Service, action and, for form requests, their fields."""
        scope = re.search(r"Credential=([^/]*)/\d+/([^/]*)/([^/]*)/", self.headers.get("Authorization", ""))
        self.key, self.region, service = scope.groups() if scope else ("anonymous", "", "unsigned")
        with self.faults.lock:
            self.faults.callers[f"{self.key} {self.region} {service}"] += 1
        target = self.headers.get("X-Amz-Target")
        if target:
            return service, target.rsplit(".", 1)[-1], None
        if self.headers.get("Content-Type", "").startswith("application/x-www-form-urlencoded"):
            form = dict(urllib.parse.parse_qsl(body.decode(), keep_blank_values=True))
            return service, form.get("Action", ""), form
        return service, f"{self.command} {self.path.split('?')[0]}", None

    def capture(self, service, body):
        """Records the request, also in the file if there is one."""
        captured = {"service": service, "key": self.key, "region": self.region, "host": self.headers.get("Host", ""),
                    "method": self.command, "path": self.path, "target": self.headers.get("X-Amz-Target"),
                    "body": body.decode()}
        if self.faults.captured_to:
            with self.faults.lock:
                print(json.dumps(captured), file=self.faults.captured_to, flush=True)
        return captured

    def answer(self, captured, form, body):
        """The response of the stand-in, of a pending page, or of moto; an error if EC2 would reject the request."""
        service, known = captured["service"], self.faults
        try:
            operation, asked, _ = wire_model.read(captured)
            if stand_in.is_expired(captured["key"]):
                known.count("signed with expired credentials")
                raise stand_in.Refused(400, "RequestExpired", "Request has expired.")
            if service == "ec2" and known.buckets:
                with known.lock:
                    is_allowed = known.buckets.take(operation, asked)
                if not is_allowed:
                    known.count(f"ec2 {operation} out of tokens")
                    raise stand_in.Refused(*throttling(service))
            if service == "ec2":
                broken = ec2_rules.broken(operation, asked, known.templates)
                if broken:
                    known.count(f"rule: {operation}: {broken[1]}")
                    raise stand_in.Refused(400, *broken)
            known.consistency.before(operation, asked, known.templates)
            answer = (known.stand_in.answer(service, operation, asked) or self.page(service, operation, form)
                      or self.forward(service, operation, form, body))
        except stand_in.Refused as refused:
            known.count(f"refused {operation} {refused.code}")
            return refusal(service, refused.status, refused.code, refused.message)
        if operation in PRICE_LISTS and answer[0] == 200 and b"nexttoken" not in answer[2].lower():
            known.count(f"{operation} last page")
        if operation == "CreateLaunchTemplate" and answer[0] == 200:
            known.templates[asked["LaunchTemplateName"]] = asked["LaunchTemplateData"]
        answer = known.reserved.after(operation, asked, answer, known.templates)
        return known.consistency.after(operation, asked, answer)

    def forward(self, service, action, form, body):
        if action in CACHED_ACTIONS and form.get("DryRun") == "true":
            # moto ignores DryRun and returns the whole list, which can take longer than the caller's timeout.
            return refusal(service, 412, "DryRunOperation", "Request would have succeeded, but DryRun flag is set.")
        if service == "ec2" and action == "CreateFleet":
            body = urllib.parse.urlencode(self.faults.reserved.form(action, form)).encode()
        cut = service == "ec2" and action in EC2_LISTS and "DryRun" not in form
        if cut:
            if action == "DescribeInstances" and "MaxResults" in form and any(
                    key.startswith("InstanceId") for key in form):
                message = "The parameter instancesSet cannot be used with the parameter maxResults"
                return refusal(service, 400, "InvalidParameterCombination", message)
            form = {key: value for key, value in form.items() if key not in ("MaxResults", "NextToken")}
            if action == "DescribeLaunchTemplates":
                form["MaxResults"] = MOTO_TEMPLATES_MAX
            body = urllib.parse.urlencode(form).encode()
        asked = (self.region, body)
        known = self.faults.cached.get(asked) if action in CACHED_ACTIONS else None
        if known:
            return known
        status, headers, body = self.all_pages(form) if cut else self.ask_moto(body)
        kept = [(name, value) for name, value in headers if name.lower() in ("content-type", "x-amzn-errortype")]
        if cut and status == 200:
            size = self.faults.page_size or PAGE_SIZES.get(action, PAGE_SIZE)
            first_page = self.cut(action, body, size, EC2_LISTS[action], "nextToken", lambda root: root) or (
                status, kept, body)
            if action in CACHED_ACTIONS:
                self.faults.cached[asked] = first_page
            return first_page
        if service == "iam" and action == "ListInstanceProfiles" and status == 200:
            inner = lambda root: root.find(f"{{{IAM}}}ListInstanceProfilesResult")
            return self.cut(action, body, 1, "InstanceProfiles", "Marker", inner) or (status, kept, body)
        return status, kept, body

    def ask_moto(self, body):
        connection = http.client.HTTPConnection(self.upstream.hostname, self.upstream.port, timeout=120)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in (
            "content-length", "connection", "accept-encoding", "transfer-encoding")}
        if self.moto_region:
            headers = {name: re.sub(r"(Credential=[^/]*/\d+/)[^/]*/", rf"\g<1>{self.moto_region}/", value)
                       for name, value in headers.items() if name.lower() != "host"}
        connection.request(self.command, self.path, body, headers)
        answer = connection.getresponse()
        status, headers, body = answer.status, answer.getheaders(), answer.read()
        connection.close()
        return status, headers, body

    def all_pages(self, form):
        """The response of moto to an EC2 call, with the items of all pages."""
        status, headers, body = self.ask_moto(urllib.parse.urlencode(form).encode())
        token = re.search(rb"<nextToken>([^<]+)</nextToken>", body)
        if status != 200 or not token:
            return status, headers, body
        _, _, rest = self.all_pages({**form, "NextToken": token.group(1).decode()})
        root, more = ElementTree.fromstring(body), ElementTree.fromstring(rest)
        space = root.tag.partition("}")[0] + "}"
        ElementTree.register_namespace("", space.strip("{}"))
        name = space + EC2_LISTS[form["Action"]]
        root.find(name).extend(more.find(name))
        root.remove(root.find(space + "nextToken"))
        return status, headers, ElementTree.tostring(root)

    def cut(self, action, body, size, list_name, token_name, inner):
        """The first page of a response; the other pages are kept for later requests."""
        root = ElementTree.fromstring(body)
        space = root.tag.partition("}")[0] + "}" if root.tag.startswith("{") else ""
        ElementTree.register_namespace("", space.strip("{}"))
        holder = inner(root)
        items = holder.find(space + list_name) if holder is not None else None
        if items is None or len(items) <= size:
            return None
        everything = list(items)
        for old in (token_name, "IsTruncated"):
            for found in holder.findall(space + old):
                holder.remove(found)
        chunks = [everything[at:at + size] for at in range(0, len(everything), size)]
        answer_id = f"{self.faults.random.getrandbits(64):016x}"
        documents = []
        for number, chunk in enumerate(chunks):
            for item in list(items):
                items.remove(item)
            items.extend(chunk)
            more = []
            if token_name == "Marker":
                more.append(("IsTruncated", str(number + 1 < len(chunks)).lower()))
            if number + 1 < len(chunks):
                more.append((token_name, f"{answer_id}-{number + 1}"))
            added = []
            for name, text in more:
                added.append(ElementTree.SubElement(holder, space + name))
                added[-1].text = text
            documents.append(ElementTree.tostring(root))
            for element in added:
                holder.remove(element)
        with self.faults.lock:
            for number, document in enumerate(documents[1:], 1):
                self.faults.pages[f"{answer_id}-{number}"] = document
        self.faults.count(f"{action} cut into pages")
        return 200, [("Content-Type", "text/xml")], documents[0]

    def page(self, service, action, form):
        """A further page, if the request has a page token. The same page can be requested again, because a response may be lost."""
        token = (form or {}).get("NextToken") or (form or {}).get("Marker")
        if not token or service not in XML_PROTOCOLS:
            return None
        with self.faults.lock:
            document = self.faults.pages.get(token)
        if document is None:
            return refusal(service, 400, "InvalidNextToken", "The token is not valid")
        self.faults.count(f"{action} further page")
        return 200, [("Content-Type", "text/xml")], document

    def refuse(self, service, status, code, message):
        return self.reply(*refusal(service, status, code, message))

    def reply(self, status, headers, body):
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def reset(self):
        """Breaks the connection without closing it properly."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.server.broken.add(self.connection)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *arguments):
        self.broken = set()
        super().__init__(*arguments)

    def shutdown_request(self, request):
        if request in self.broken:
            self.broken.discard(request)
            return self.close_request(request)
        return super().shutdown_request(request)

    def handle_error(self, request, client_address):
        """Connections that a client or the simulator closed are expected; all other errors are bugs."""
        if not isinstance(sys.exc_info()[1], (OSError, http.client.HTTPException)):
            super().handle_error(request, client_address)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--upstream", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    defaults = {"throttle": 0.10, "error": 0.04, "lost_request": 0.03, "lost_answer": 0.02, "slow": 0.05}
    for fault, ratio in defaults.items():
        parser.add_argument("--" + fault.replace("_", "-"), type=float, default=ratio, metavar="RATIO")
    parser.add_argument("--capture", type=argparse.FileType("a"), metavar="FILE")
    parser.add_argument("--tls", nargs=2, metavar=("PORT", "FILE"), help="also with TLS, by a key and its certificate")
    parser.add_argument("--buckets", type=float, metavar="PERCENT", help="throttle calls by this share of EC2's token buckets")
    parser.add_argument("--page-size", type=int, metavar="ITEMS", help="of every list of EC2, in place of small pages")
    parser.add_argument("--moto-region", metavar="REGION", help="the region in moto that answers for every region")
    parser.add_argument("--hide", type=float, default=0, metavar="SECONDS", help="hide what was just made that long")
    given = parser.parse_args()
    Handler.upstream = urllib.parse.urlsplit(given.upstream)
    Handler.faults = Faults({fault: getattr(given, fault) for fault in defaults}, given.seed)
    Handler.faults.captured_to, Handler.moto_region = given.capture, given.moto_region
    Handler.faults.page_size = given.page_size
    Handler.faults.buckets = buckets.Buckets(given.buckets) if given.buckets else None
    Handler.faults.consistency = consistency.Consistency(given.hide)
    if given.tls:
        port, certificate = given.tls
        secure = Server(("127.0.0.1", int(port)), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        # TLS handshakes happen in the thread of each connection.
        secure.socket = context.wrap_socket(secure.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=secure.serve_forever, daemon=True).start()
    Server(("127.0.0.1", given.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
