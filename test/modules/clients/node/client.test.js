// The calls of the JavaScript client against a cluster. KUBECONFIG names it, and
// each context is one of its nodes; its history is short.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import * as k8s from '@kubernetes/client-node';

const namespace = 'javascript';
const contexts = new k8s.KubeConfig();
contexts.loadFromDefault();
const nodes = contexts.getContexts().map((context) => {
  const config = new k8s.KubeConfig();
  config.loadFromDefault();
  config.setCurrentContext(context.name);
  return { config, core: config.makeApiClient(k8s.CoreV1Api), apps: config.makeApiClient(k8s.AppsV1Api) };
});
// Each call goes to another node than the one before.
let turn = 0;
const node = () => nodes[turn++ % nodes.length];
const core = () => node().core;

const path = `/api/v1/namespaces/${namespace}/configmaps`;
const configMap = (name, data, labels) => ({ metadata: { name, labels }, data });
const create = (body) => core().createNamespacedConfigMap({ namespace, body });
const names = (objects) => objects.map((o) => o.metadata.name).sort();

// until awaits a condition, which is undefined until it holds.
async function until(what, condition) {
  const end = Date.now() + 20_000;
  for (;;) {
    const value = await condition();
    if (value !== undefined && value !== false) return value;
    if (Date.now() > end) assert.fail(`not in time: ${what}`);
    await pause(50);
  }
}

const refused = (code, reason) => (err) => {
  assert.equal(err.code, code, String(err));
  assert.equal(JSON.parse(err.body).reason, reason);
  return true;
};

test('before', async () => {
  assert.equal(nodes.length, 3);
  await core().createNamespace({ body: { metadata: { name: namespace } } });
});

test('get, create, replace, delete', async () => {
  const made = await create(configMap('one', { k: '1' }));
  assert.ok(made.metadata.uid);
  assert.ok(made.metadata.creationTimestamp instanceof Date);
  const read = await core().readNamespacedConfigMap({ namespace, name: 'one' });
  assert.equal(read.metadata.resourceVersion, made.metadata.resourceVersion);
  read.data.k = '2';
  await core().replaceNamespacedConfigMap({ namespace, name: 'one', body: read });
  await assert.rejects(core().replaceNamespacedConfigMap({ namespace, name: 'one', body: read }), refused(409, 'Conflict'));
  await assert.rejects(create(configMap('one')), refused(409, 'AlreadyExists'));
  await assert.rejects(create(configMap('Not a name')), refused(422, 'Invalid'));
  const status = await core().deleteNamespacedConfigMap({ namespace, name: 'one' });
  assert.equal(status.status, 'Success');
  await assert.rejects(core().readNamespacedConfigMap({ namespace, name: 'one' }), refused(404, 'NotFound'));
});

test('list, with selectors and in pages', async () => {
  for (const i of [1, 2, 3, 4, 5]) await create(configMap(`l${i}`, { i: `${i}` }, { parity: i % 2 ? 'odd' : 'even' }));
  const odd = await core().listNamespacedConfigMap({ namespace, labelSelector: 'parity=odd' });
  assert.deepEqual(names(odd.items), ['l1', 'l3', 'l5']);
  const one = await core().listNamespacedConfigMap({ namespace, fieldSelector: 'metadata.name=l2' });
  assert.deepEqual(names(one.items), ['l2']);
  const all = [];
  let page;
  let pages = 0;
  do {
    page = await core().listNamespacedConfigMap({ namespace, labelSelector: 'parity', limit: 2, _continue: page?.metadata._continue });
    all.push(...page.items);
    pages++;
  } while (page.metadata._continue);
  assert.equal(pages, 3);
  assert.deepEqual(names(all), ['l1', 'l2', 'l3', 'l4', 'l5']);
  await core().deleteCollectionNamespacedConfigMap({ namespace, labelSelector: 'parity' });
  assert.deepEqual((await core().listNamespacedConfigMap({ namespace, labelSelector: 'parity' })).items, []);
});

test('patch, in each of its types', async () => {
  await create(configMap('p', { a: '1', b: '1' }));
  const patch = (type, body) => core().patchNamespacedConfigMap({ namespace, name: 'p', body }, k8s.setHeaderOptions('Content-Type', type));
  let got = await patch(k8s.PatchStrategy.JsonPatch, [{ op: 'replace', path: '/data/a', value: '2' }]);
  assert.deepEqual(got.data, { a: '2', b: '1' });
  got = await patch(k8s.PatchStrategy.MergePatch, { data: { b: null } });
  assert.deepEqual(got.data, { a: '2' });
  got = await patch(k8s.PatchStrategy.StrategicMergePatch, { metadata: { labels: { x: 'y' } } });
  assert.equal(got.metadata.labels.x, 'y');
  await assert.rejects(patch(k8s.PatchStrategy.JsonPatch, [{ op: 'test', path: '/data/a', value: '1' }]), refused(422, 'Invalid'));
});

test('watch', async () => {
  const from = (await core().listNamespacedConfigMap({ namespace })).metadata.resourceVersion;
  const events = [];
  let ended;
  const request = await new k8s.Watch(node().config).watch(path, { resourceVersion: from, allowWatchBookmarks: true },
    (type, object) => events.push({ type, object }), (err) => { ended = err; });
  await create(configMap('w', { k: '1' }));
  await core().patchNamespacedConfigMap({ namespace, name: 'w', body: { data: { k: '2' } } },
    k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.MergePatch));
  await core().deleteNamespacedConfigMap({ namespace, name: 'w' });
  const seen = () => events.filter((e) => e.type !== 'BOOKMARK');
  await until('three events', () => seen().length >= 3);
  assert.deepEqual(seen().map((e) => e.type), ['ADDED', 'MODIFIED', 'DELETED']);
  for (const { type, object } of events.filter((e) => e.type === 'BOOKMARK')) {
    assert.equal(object.kind, 'ConfigMap', type);
    assert.ok(object.metadata.resourceVersion);
  }
  request.abort();
  await until('the end', () => ended !== undefined);
});

// informer runs one on a node, with its own account of what it was told.
function informer(config, list) {
  const cache = new k8s.ListWatch(path, new k8s.Watch(config), list, false);
  const told = { add: [], update: [], delete: [], error: [] };
  for (const verb of Object.keys(told)) cache.on(verb, (o) => told[verb].push(o.metadata?.name ?? o));
  return { cache, told };
}

test('informer', async () => {
  const { config, core: own } = node();
  const list = () => own.listNamespacedConfigMap({ namespace });
  const { cache, told } = informer(config, list);
  await cache.start();
  try {
    await create(configMap('i1'));
    await create(configMap('i2'));
    await until('two were added', () => told.add.includes('i1') && told.add.includes('i2'));
    await core().patchNamespacedConfigMap({ namespace, name: 'i1', body: { data: { k: '2' } } },
      k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.MergePatch));
    await until('one was changed', () => told.update.includes('i1'));
    await core().deleteNamespacedConfigMap({ namespace, name: 'i2' });
    await until('one was deleted', () => told.delete.includes('i2'));
    const now = await list();
    await until('it knows what there is', () => JSON.stringify(names(cache.list(namespace))) === JSON.stringify(names(now.items)));
    assert.equal(cache.get('i1', namespace).data.k, '2');
    assert.deepEqual(told.error, []);
  } finally {
    await cache.stop();
  }
});

test('410 Gone', async () => {
  const { config, core: own } = node();
  const old = await own.listNamespacedConfigMap({ namespace });
  await create(configMap('late'));
  // The history is short: its end passes the list's version.
  await until('the old version is gone', async () => {
    await core().patchNamespacedConfigMap({ namespace, name: 'late', body: { data: { at: `${Date.now()}` } } },
      k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.MergePatch));
    try {
      await own.listNamespacedConfigMap({ namespace, resourceVersion: old.metadata.resourceVersion, resourceVersionMatch: 'Exact' });
    } catch (err) {
      return refused(410, 'Expired')(err);
    }
  });
  // A watch learns it in the stream, and the stream ends.
  const events = [];
  let ended = false;
  await new k8s.Watch(config).watch(path, { resourceVersion: old.metadata.resourceVersion },
    (type, object) => events.push({ type, object }), () => { ended = true; });
  await until('the watch has ended', () => ended);
  assert.equal(events.length, 1);
  assert.equal(events[0].type, 'ERROR');
  assert.equal(events[0].object.code, 410);
  // An informer that begins with the old list makes a new one by itself.
  let lists = 0;
  const { cache, told } = informer(config, async () => (lists++ === 0 ? old : own.listNamespacedConfigMap({ namespace })));
  await cache.start();
  try {
    await until('it knows what came later', () => cache.get('late', namespace));
    assert.equal(lists, 2);
    assert.deepEqual(told.error, []);
    await create(configMap('later'));
    await until('it watches again', () => told.add.includes('later'));
  } finally {
    await cache.stop();
  }
});

test('objects of any kind, by discovery', async () => {
  const { config } = node();
  const api = k8s.KubernetesObjectApi.makeApiClient(config);
  const head = { apiVersion: 'apps/v1', kind: 'Deployment', metadata: { name: 'd', namespace } };
  const template = { metadata: { labels: { a: 'b' } }, spec: { containers: [{ name: 'c', image: 'i' }] } };
  const made = await api.create({ ...head, spec: { replicas: 2, selector: { matchLabels: { a: 'b' } }, template } });
  assert.equal(made.spec.revisionHistoryLimit, 10);
  const patched = await api.patch({ ...head, spec: { replicas: 3 } }, undefined, undefined, undefined, undefined, k8s.PatchStrategy.MergePatch);
  assert.equal(patched.spec.replicas, 3);
  assert.equal((await api.read(head)).spec.replicas, 3);
  assert.equal((await api.list('apps/v1', 'Deployment', namespace)).items.length, 1);
  const scale = await node().apps.readNamespacedDeploymentScale({ name: 'd', namespace });
  assert.equal(scale.spec.replicas, 3);
  await node().apps.replaceNamespacedDeploymentScale({ name: 'd', namespace, body: { ...scale, spec: { replicas: 1 } } });
  assert.equal((await api.read(head)).spec.replicas, 1);
  await api.delete(head);
  await assert.rejects(api.read(head), (err) => err.code === 404);
});

test('version, health, groups', async () => {
  const { config } = node();
  const version = await config.makeApiClient(k8s.VersionApi).getCode();
  assert.equal(version.major, '1');
  const groups = await config.makeApiClient(k8s.ApisApi).getAPIVersions();
  assert.ok(groups.groups.some((g) => g.name === 'apps' && g.preferredVersion.version === 'v1'));
  const health = new k8s.Health(config);
  assert.equal(await health.readyz({}), true);
  assert.equal(await health.livez({}), true);
});

test('after', async () => {
  await core().deleteNamespace({ name: namespace });
  await until('the namespace is gone', async () => {
    try {
      await core().readNamespace({ name: namespace });
    } catch (err) {
      return refused(404, 'NotFound')(err);
    }
  });
});
