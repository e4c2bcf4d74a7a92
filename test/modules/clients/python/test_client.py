"""What Debian's Python client (python3-kubernetes) makes of a cluster of three nodes: the subjects
of its own end-to-end tests, without those that need a kubelet. Run by TestPython."""

import json
import logging
import os
import threading
import time
import unittest
import uuid

import yaml
from kubernetes import client, config, utils, watch
from kubernetes.client.rest import ApiException
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import ConflictError, NotFoundError
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.configmaplock import ConfigMapLock

KUBECONFIG = os.environ["KUBECONFIG"]
CONTEXTS = [c["name"] for c in config.list_kube_config_contexts(KUBECONFIG)[0]]


def connect(context=None):
    """A client of its own, of one node."""
    return config.new_client_from_config(KUBECONFIG, context=context)


def unique(prefix):
    return prefix + "-" + uuid.uuid4().hex[:8]


POD = {"containers": [{"name": "c", "image": "busybox", "command": ["sh"]}]}


def labelled(app):
    return {"metadata": {"labels": {"app": app}}, "spec": POD}


class Client(unittest.TestCase):
    def setUp(self):
        self.api = connect()
        self.core = client.CoreV1Api(self.api)
        self.namespace = unique("python")
        self.core.create_namespace({"metadata": {"name": self.namespace}})
        deadline = time.monotonic() + 30
        while not self.core.list_namespaced_service_account(self.namespace).items:
            self.assertLess(time.monotonic(), deadline, "no service account")
            time.sleep(0.05)

    def tearDown(self):
        self.core.delete_namespace(self.namespace)

    def test_every_node_shows_what_was_written_at_another(self):
        self.assertEqual(len(CONTEXTS), 3)
        nodes = [client.CoreV1Api(connect(c)) for c in CONTEXTS]
        for n, writer in enumerate(nodes):
            name = "from-%d" % n
            made = writer.create_namespaced_config_map(self.namespace, {"metadata": {"name": name}, "data": {"n": str(n)}})
            for reader in nodes:
                seen = reader.read_namespaced_config_map(name, self.namespace)
                self.assertEqual(seen.metadata.resource_version, made.metadata.resource_version)

    def test_pods_and_their_status(self):
        name = unique("pod")
        self.core.create_namespaced_pod(self.namespace, {"metadata": {"name": name}, "spec": POD})
        self.core.patch_namespaced_pod_status(name, self.namespace, {"status": {"message": "from python"}})
        pod = self.core.read_namespaced_pod_status(name, self.namespace)
        self.assertEqual((pod.status.phase, pod.status.message), ("Pending", "from python"))
        self.assertEqual(pod.spec.service_account_name, "default")
        self.core.delete_namespaced_pod(name, self.namespace, grace_period_seconds=0)
        with self.assertRaises(ApiException) as refused:
            self.core.read_namespaced_pod(name, self.namespace)
        self.assertEqual((refused.exception.status, json.loads(refused.exception.body)["reason"]), (404, "NotFound"))

    def test_services_keep_their_address_over_patches(self):
        name = unique("service")
        made = self.core.create_namespaced_service(self.namespace, {"metadata": {"name": name}, "spec": {"ports": [{"port": 80, "name": "http"}]}})
        self.assertTrue(made.spec.cluster_ip)
        changed = self.core.patch_namespaced_service(name, self.namespace, {"spec": {"ports": [{"port": 8080, "name": "new"}]}})
        self.assertEqual(changed.spec.cluster_ip, made.spec.cluster_ip)
        self.assertEqual(sorted(p.port for p in changed.spec.ports), [80, 8080])
        self.core.delete_namespaced_service(name, self.namespace)

    def test_config_maps_are_replaced_and_stale_ones_refused(self):
        name = unique("map")
        first = self.core.create_namespaced_config_map(self.namespace, {"metadata": {"name": name}, "data": {"k": "v"}})
        second = self.core.replace_namespaced_config_map(name, self.namespace, {
            "metadata": {"name": name, "resourceVersion": first.metadata.resource_version}, "data": {"k": "w"}})
        self.assertEqual(second.data, {"k": "w"})
        with self.assertRaises(ApiException) as refused:
            self.core.replace_namespaced_config_map(name, self.namespace, first)
        self.assertEqual(refused.exception.status, 409)
        kept = self.core.list_namespaced_config_map(self.namespace, label_selector="app=none")
        self.assertEqual(kept.items, [])

    def test_lists_come_in_pages(self):
        for n in range(7):
            self.core.create_namespaced_config_map(self.namespace, {"metadata": {"name": "page-%d" % n, "labels": {"page": "y"}}})
        names, cont, pages = [], None, 0
        while pages == 0 or cont:
            page = self.core.list_namespaced_config_map(self.namespace, label_selector="page=y", limit=3, _continue=cont)
            names += [i.metadata.name for i in page.items]
            cont, pages = page.metadata._continue, pages + 1
        self.assertEqual((pages, names), (3, ["page-%d" % n for n in range(7)]))

    def test_deployments_replica_sets_and_jobs(self):
        apps, batch = client.AppsV1Api(self.api), client.BatchV1Api(self.api)
        spec = {"replicas": 1, "selector": {"matchLabels": {"app": "a"}}, "template": labelled("a")}
        apps.create_namespaced_deployment(self.namespace, {"metadata": {"name": "d"}, "spec": spec})
        apps.patch_namespaced_deployment_scale("d", self.namespace, {"spec": {"replicas": 3}})
        self.assertEqual(apps.read_namespaced_deployment("d", self.namespace).spec.replicas, 3)
        answered = apps.read_namespaced_deployment_scale("d", self.namespace)
        self.assertEqual((answered.spec.replicas, answered.status.selector), (3, "app=a"))
        apps.create_namespaced_daemon_set(self.namespace, {"metadata": {"name": "s"}, "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": labelled("a")}})
        job = batch.create_namespaced_job(self.namespace, {"metadata": {"name": "j"}, "spec": {"template": {"spec": dict(POD, restartPolicy="Never")}}})
        self.assertEqual((job.spec.completions, job.spec.backoff_limit), (1, 6))
        with self.assertRaises(ApiException) as refused:
            apps.create_namespaced_deployment(self.namespace, {"metadata": {"name": "e"}, "spec": dict(spec, replicas=-1)})
        self.assertEqual(refused.exception.status, 422)

    def test_watch_tells_changes_and_goes_on_from_a_version(self):
        name, w = unique("watched"), watch.Watch()
        begun = self.core.list_namespaced_config_map(self.namespace).metadata.resource_version
        self.core.create_namespaced_config_map(self.namespace, {"metadata": {"name": name}})
        self.core.patch_namespaced_config_map(name, self.namespace, {"data": {"k": "v"}})
        self.core.delete_namespaced_config_map(name, self.namespace)
        seen, versions = [], []
        for event in w.stream(self.core.list_namespaced_config_map, self.namespace, resource_version=begun, timeout_seconds=30):
            if event["object"].metadata.name != name:
                continue
            seen.append(event["type"])
            versions.append(event["object"].metadata.resource_version)
            if event["type"] == "DELETED":
                w.stop()
        self.assertEqual(seen, ["ADDED", "MODIFIED", "DELETED"])
        # At another node, from the middle.
        again, w = [], watch.Watch()
        other = client.CoreV1Api(connect(CONTEXTS[1]))
        for event in w.stream(other.list_namespaced_config_map, self.namespace, resource_version=versions[0], timeout_seconds=30):
            if event["object"].metadata.name == name:
                again.append(event["type"])
                if event["type"] == "DELETED":
                    w.stop()
        self.assertEqual(again, ["MODIFIED", "DELETED"])

    def test_watch_without_a_version_begins_with_what_is_there_and_ends_in_time(self):
        self.core.create_namespaced_secret(self.namespace, {"metadata": {"name": "s"}, "stringData": {"k": "v"}})
        began = time.monotonic()
        events = list(watch.Watch().stream(self.core.list_namespaced_secret, self.namespace, timeout_seconds=1))
        self.assertEqual([(e["type"], e["object"].metadata.name) for e in events], [("ADDED", "s")])
        self.assertLess(time.monotonic() - began, 20)

    def test_watch_of_a_version_that_is_gone(self):
        old = self.core.create_namespaced_config_map(self.namespace, {"metadata": {"name": "old"}}).metadata.resource_version
        deadline = time.monotonic() + 60  # the cluster keeps two seconds of history
        while True:
            self.core.patch_namespaced_config_map("old", self.namespace, {"data": {"t": str(time.monotonic())}})
            try:
                for _ in watch.Watch().stream(self.core.list_namespaced_config_map, self.namespace, resource_version=old, timeout_seconds=1):
                    break
            except ApiException as e:
                self.assertEqual(e.status, 410)
                return
            self.assertLess(time.monotonic(), deadline, "the history does not end")
            time.sleep(0.3)

    def test_utils_create_what_yaml_says(self):
        documents = yaml.safe_load_all("""
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Service, metadata: {name: listed}, spec: {ports: [{port: 80}]}}
- {apiVersion: apps/v1, kind: Deployment, metadata: {name: listed}, spec: {selector: {matchLabels: {app: l}}, template: {metadata: {labels: {app: l}}, spec: {containers: [{name: c, image: i}]}}}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: alone}, rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}
""")
        for document in documents:
            utils.create_from_dict(self.api, document, namespace=self.namespace)
        self.assertEqual(client.AppsV1Api(self.api).read_namespaced_deployment("listed", self.namespace).spec.replicas, 1)
        self.assertTrue(client.RbacAuthorizationV1Api(self.api).read_namespaced_role("alone", self.namespace).rules)
        with self.assertRaises(utils.FailToCreateError) as refused:
            utils.create_from_dict(self.api, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "listed"}, "spec": {"ports": [{"port": 80}]}}, namespace=self.namespace)
        self.assertEqual(refused.exception.api_exceptions[0].status, 409)

    def test_dynamic_client_of_kinds_that_it_does_not_know(self):
        dynamic = DynamicClient(connect())
        group = unique("g") + ".example.com"
        definitions = dynamic.resources.get(api_version="apiextensions.k8s.io/v1", kind="CustomResourceDefinition")
        name = "things." + group
        definitions.create(body={"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name}, "spec": {
            "group": group, "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": True, "storage": True, "subresources": {"status": {}},
                          "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}}, "status": {"type": "object", "properties": {"m": {"type": "integer"}}}}}}}]}})
        self.addCleanup(lambda: definitions.delete(name=name))
        for event in definitions.watch(field_selector="metadata.name=" + name, timeout=30):
            conditions = event["raw_object"].get("status", {}).get("conditions") or []
            if any(c["type"] == "Established" and c["status"] == "True" for c in conditions):
                break
        things = dynamic.resources.get(api_version=group + "/v1", kind="Thing")
        body = {"apiVersion": group + "/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"n": 1}}
        made = things.create(body=body, namespace=self.namespace)
        with self.assertRaises(ConflictError):
            things.create(body=body, namespace=self.namespace)
        body["metadata"]["resourceVersion"], body["spec"]["n"] = made.metadata.resourceVersion, 2
        self.assertEqual(things.replace(body=body, namespace=self.namespace).spec.n, 2)
        patched = things.patch(body={"spec": {"n": 3}}, name="a", namespace=self.namespace, content_type="application/merge-patch+json")
        self.assertEqual((patched.spec.n, patched.metadata.generation), (3, 3))
        things.status.patch(body={"status": {"m": 1}}, name="a", namespace=self.namespace, content_type="application/merge-patch+json")
        self.assertEqual([i.status.m for i in things.get(namespace=self.namespace).items], [1])
        with self.assertRaises(Exception) as refused:
            things.patch(body={"spec": {"n": 0}}, name="a", namespace=self.namespace, content_type="application/merge-patch+json")
        self.assertEqual(refused.exception.status, 422)
        things.delete(name="a", namespace=self.namespace)
        with self.assertRaises(NotFoundError):
            things.get(name="a", namespace=self.namespace)

    def test_leader_election_hands_over(self):
        name, led, stopped = unique("lease"), [], []
        first, second = threading.Event(), threading.Event()

        class Ends(Exception):
            pass

        class Lock(ConfigMapLock):
            """A lock that its holder stops renewing, as a process that dies does."""

            def __init__(self, identity, dies):
                super().__init__(name, namespace, identity)
                self.api_instance, self.dies = client.CoreV1Api(connect(CONTEXTS[len(led) % 3])), dies

            def update(self, name, namespace, record):
                if self.dies.is_set():
                    raise Ends()
                return super().update(name, namespace, record)

        namespace, dies = self.namespace, threading.Event()

        def campaign(identity, leads, dies):
            def starts():
                led.append(identity)
                leads.set()

            settings = electionconfig.Config(Lock(identity, dies), lease_duration=3, renew_deadline=2, retry_period=1,
                                             onstarted_leading=starts, onstopped_leading=lambda: stopped.append(identity))
            try:
                leaderelection.LeaderElection(settings).run()
            except Ends:
                stopped.append(identity)

        over = threading.Event()
        threading.Thread(target=campaign, args=("one", first, dies), daemon=True).start()
        self.assertTrue(first.wait(30), "nobody leads")
        other = threading.Thread(target=campaign, args=("two", second, over), daemon=True)
        other.start()
        self.assertFalse(second.wait(4), "two lead at once")
        dies.set()
        self.assertTrue(second.wait(30), "nobody takes over")
        self.assertEqual(led, ["one", "two"])
        record = self.core.read_namespaced_config_map(name, self.namespace).metadata.annotations["control-plane.alpha.kubernetes.io/leader"]
        self.assertEqual(json.loads(record)["holderIdentity"], "two")
        over.set()
        other.join(30)
        self.assertEqual(stopped, ["one", "two"])


if __name__ == "__main__":
    logging.disable(logging.INFO)  # what candidates try
    unittest.main(verbosity=2, warnings="ignore")  # of sockets that the client leaves open
