"""An API server of Kubernetes with what Spark asks of it, within the rights of a Role: its pods are processes here."""

import contextlib
import json
import os
import queue
import re
import subprocess
import sys
import threading
import urllib.parse
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SPARK = Path(__file__).parents[2] / "deploy" / "image" / "spark.py"
"""What the image's entry point runs for the argument `executor`."""


@dataclass
class Kubernetes:
    """The server.

    Attributes:
        folder: Where each pod has a folder, which it gets in place of the volume at /tmp, and a log.
        rules: The rules of the Role of the pods' service account. All else is refused.
        pods: The pods by name.
        created: The pods that were created, as the server got them.
        asked: The requests, as verb and resource.
        refused: Those that the rules do not permit.
    """

    folder: Path
    rules: list[dict[str, Any]]
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    created: list[dict[str, Any]] = field(default_factory=list)
    asked: set[tuple[str, str]] = field(default_factory=set)
    refused: set[tuple[str, str]] = field(default_factory=set)
    url: str = ""
    _processes: "dict[str, subprocess.Popen[bytes]]" = field(default_factory=dict)
    _watches: "list[queue.Queue[dict[str, Any]]]" = field(default_factory=list)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def permits(self, verb: str, resource: str) -> bool:
        self.asked.add((verb, resource))
        if any(verb in rule["verbs"] and resource in rule["resources"] for rule in self.rules):
            return True
        self.refused.add((verb, resource))
        return False

    def put(self, event: str, pod: dict[str, Any]) -> None:
        """Keeps a pod, or what is left of it, and tells those who watch."""
        with self._lock:
            pod["metadata"]["resourceVersion"] = uuid.uuid4().hex
            if event == "DELETED":
                self.pods.pop(pod["metadata"]["name"], None)
            else:
                self.pods[pod["metadata"]["name"]] = pod
            for watch in self._watches:
                watch.put({"type": event, "object": json.loads(json.dumps(pod))})

    def create(self, pod: dict[str, Any]) -> dict[str, Any]:
        """Runs the pod's container, as a kubelet does with the image."""
        self.created.append(json.loads(json.dumps(pod)))
        (container,) = pod["spec"]["containers"]
        name = pod["metadata"]["name"]
        fields = {"metadata.name": name, "status.podIP": "127.0.0.1"}
        (self.folder / name).mkdir()
        variables = {
            one["name"]: one.get("value") or fields[one["valueFrom"]["fieldRef"]["fieldPath"]]
            for one in container.get("env", ())
            if one.get("value") or one.get("valueFrom")
        }
        assert variables["SPARK_LOCAL_DIRS"] == "/tmp"  # noqa: S108 - the container's
        variables |= {"SPARK_LOCAL_DIRS": str(self.folder / name), "PATH": os.environ["PATH"]}
        with (self.folder / f"{name}.log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, SPARK, *container["args"]], env=variables, stdout=log, stderr=log
            )
        self._processes[name] = process
        pod["metadata"] |= {"uid": str(uuid.uuid4()), "creationTimestamp": datetime.now(UTC).isoformat()}
        pod["status"] = {"phase": "Running", "podIP": "127.0.0.1"}
        self.put("ADDED", pod)
        threading.Thread(target=self._await, args=(pod, process), daemon=True).start()
        return pod

    def _await(self, pod: dict[str, Any], process: "subprocess.Popen[bytes]") -> None:
        code = process.wait()
        if pod["metadata"]["name"] in self.pods:
            state = {"name": "executor", "state": {"terminated": {"exitCode": code}}}
            pod["status"] |= {"phase": "Failed" if code else "Succeeded", "containerStatuses": [state]}
            self.put("MODIFIED", pod)

    def delete(self, name: str) -> None:
        pod, process = self.pods[name], self._processes[name]
        self.put("DELETED", pod)
        process.terminate()

    def chosen(self, selector: str) -> list[dict[str, Any]]:
        """Returns the pods that a label selector chooses; of its requirements `=` and `!=` are known."""
        wanted = [re.fullmatch(r"([^=!]+)(!?=)(.*)", part) for part in selector.split(",") if part]
        return [
            pod
            for pod in self.pods.values()
            if all(
                match and (pod["metadata"].get("labels", {}).get(match[1]) == match[3]) == (match[2] == "=")
                for match in wanted
            )
        ]

    @contextmanager
    def watching(self) -> "Iterator[queue.Queue[dict[str, Any]]]":
        events: queue.Queue[dict[str, Any]] = queue.Queue()
        self._watches.append(events)
        try:
            yield events
        finally:
            self._watches.remove(events)

    def end(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()


@contextmanager
def running_kubernetes(folder: Path, rules: list[dict[str, Any]]) -> Iterator[Kubernetes]:
    """Runs the server at `url`."""
    cluster = Kubernetes(folder, rules)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self, code: int, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _handle(self) -> None:
            url = urllib.parse.urlsplit(self.path)
            query = dict(urllib.parse.parse_qsl(url.query))
            resource, _, name = url.path.partition("/namespaces/data/")[2].partition("/")
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else {}
            is_watch = query.get("watch") == "true"
            verb = {
                "GET": "get" if name else "watch" if is_watch else "list",
                "POST": "create",
                "PATCH": "patch",
                "PUT": "update",
                "DELETE": "delete" if name else "deletecollection",
            }[self.command]
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
            if not cluster.permits(verb, resource or url.path):
                self._answer(403, status | {"reason": "Forbidden", "code": 403})
            elif verb == "create":
                self._answer(201, cluster.create(body))
            elif verb == "watch":
                self._watch()
            elif verb in ("list", "deletecollection"):
                pods = cluster.chosen(query.get("labelSelector", ""))
                if verb == "deletecollection":
                    for pod in pods:
                        cluster.delete(pod["metadata"]["name"])
                self._answer(200, {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods})
            elif name not in cluster.pods:
                self._answer(404, status | {"reason": "NotFound", "code": 404})
            else:
                pod = cluster.pods[name]
                if verb == "delete":
                    cluster.delete(name)
                self._answer(200, pod)

        def _watch(self) -> None:
            if "Upgrade" in self.headers:  # a client that may not have a WebSocket asks again without
                self._answer(200, {})
                return
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            with cluster.watching() as events, contextlib.suppress(OSError):  # the client ends it
                while True:
                    line = json.dumps(events.get()).encode() + b"\n"
                    self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
                    self.wfile.flush()

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _handle

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    cluster.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield cluster
    finally:
        cluster.end()
        server.shutdown()
