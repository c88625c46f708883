// The JavaScript client against the server that KUBECONFIG names: one function for each fact.

const assert = require('node:assert/strict');
const k8s = require('@kubernetes/client-node');

const config = new k8s.KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(k8s.CoreV1Api);
const apps = config.makeApiClient(k8s.AppsV1Api);

const configMap = (name, labels = {}) => ({ metadata: { name, labels: { app: 'web', ...labels } }, data: { color: 'red' } });
const names = (list) => list.items.map((item) => item.metadata.name);
const patchAs = (strategy) => k8s.setHeaderOptions('Content-Type', strategy);

async function namespaced(name) {
    await core.createNamespace({ body: { metadata: { name } } });
    return name;
}

// The call is answered with this HTTP code and a Status with this reason.
async function refused(code, reason, call) {
    await assert.rejects(call, (error) => {
        assert.equal(error.code, code);
        const status = typeof error.body === 'string' ? JSON.parse(error.body) : error.body;
        assert.equal(status.reason, reason);
        return true;
    });
}

const facts = {
    async anObjectIsCreatedReadAndDeleted() {
        const namespace = 'default';
        const created = await core.createNamespacedConfigMap({ namespace, body: configMap('one') });
        assert.ok(created.metadata.uid && created.metadata.resourceVersion && created.metadata.creationTimestamp);
        await refused(409, 'AlreadyExists', core.createNamespacedConfigMap({ namespace, body: configMap('one') }));
        assert.deepEqual(await core.readNamespacedConfigMap({ namespace, name: 'one' }), created);
        await core.deleteNamespacedConfigMap({ namespace, name: 'one' });
        await refused(404, 'NotFound', core.readNamespacedConfigMap({ namespace, name: 'one' }));
        await refused(422, 'Invalid', core.createNamespacedConfigMap({ namespace, body: configMap('Not_A_Name') }));
    },

    async aListIsSelectedAndPaged() {
        const namespace = await namespaced('paged');
        for (const name of 'abcde') await core.createNamespacedConfigMap({ namespace, body: configMap(name, { name }) });
        assert.deepEqual(names(await core.listNamespacedConfigMap({ namespace, labelSelector: 'name in (b,d)' })), ['b', 'd']);
        assert.deepEqual(names(await core.listNamespacedConfigMap({ namespace, fieldSelector: 'metadata.name=c' })), ['c']);
        const page = await core.listNamespacedConfigMap({ namespace, limit: 2 });
        assert.deepEqual(names(page), ['a', 'b']);
        const rest = await core.listNamespacedConfigMap({ namespace, _continue: page.metadata._continue });
        assert.deepEqual(names(rest), ['c', 'd', 'e']);
    },

    async patchesOfAllTypesChangeWhatTheyName() {
        const namespace = await namespaced('patched');
        await core.createNamespacedConfigMap({ namespace, body: configMap('one') });
        const send = async (body, strategy) =>
            (await core.patchNamespacedConfigMap({ namespace, name: 'one', body }, patchAs(strategy))).data;
        const operations = [{ op: 'add', path: '/data/shape', value: 'round' }];
        assert.deepEqual(await send(operations, k8s.PatchStrategy.JsonPatch), { color: 'red', shape: 'round' });
        assert.deepEqual(await send({ data: { color: null } }, k8s.PatchStrategy.MergePatch), { shape: 'round' });
        const merged = await send({ data: { size: '2' } }, k8s.PatchStrategy.StrategicMergePatch);
        assert.deepEqual(merged, { shape: 'round', size: '2' });
    },

    async appliedFieldsHaveOwners() {
        const namespace = await namespaced('applied');
        const send = async (data, fieldManager) => {
            const body = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'one' }, data };
            const request = { namespace, name: 'one', body, fieldManager };
            return (await core.patchNamespacedConfigMap(request, patchAs(k8s.PatchStrategy.ServerSideApply))).data;
        };
        await send({ mine: '1' }, 'me');
        assert.deepEqual(await send({ theirs: '2' }, 'them'), { mine: '1', theirs: '2' });
        await refused(409, 'Conflict', send({ mine: '3' }, 'them'));
        assert.deepEqual(await send({}, 'me'), { theirs: '2' });
    },

    async anUpdateFromAnOldVersionIsAConflict() {
        const namespace = await namespaced('updated');
        const old = await core.createNamespacedConfigMap({ namespace, body: configMap('one') });
        const body = { ...old, data: { color: 'blue' } };
        await core.replaceNamespacedConfigMap({ namespace, name: 'one', body });
        await refused(409, 'Conflict', core.replaceNamespacedConfigMap({ namespace, name: 'one', body: old }));
        assert.deepEqual((await core.readNamespacedConfigMap({ namespace, name: 'one' })).data, { color: 'blue' });
    },

    async aWatchTellsEveryChangeInOrder() {
        const namespace = await namespaced('watched');
        const from = (await core.listNamespacedConfigMap({ namespace })).metadata.resourceVersion;
        await core.createNamespacedConfigMap({ namespace, body: configMap('one') });
        const body = { data: { color: 'blue' } };
        await core.patchNamespacedConfigMap({ namespace, name: 'one', body }, patchAs(k8s.PatchStrategy.MergePatch));
        const seen = [];
        await new Promise((resolve, reject) => {
            const told = (type, object) => {
                seen.push(`${type} ${object.data.color}`);
                if (seen.length === 2) core.deleteNamespacedConfigMap({ namespace, name: 'one' }).catch(reject);
                if (seen.length === 3) resolve();
            };
            const query = { resourceVersion: from, timeoutSeconds: 30 };
            const ended = (error) => (error && seen.length < 3 ? reject(error) : resolve());
            new k8s.Watch(config).watch(`/api/v1/namespaces/${namespace}/configmaps`, query, told, ended).catch(reject);
        });
        assert.deepEqual(seen, ['ADDED red', 'MODIFIED blue', 'DELETED blue']);
    },

    async aDeploymentHasDefaultsAScaleAndAStatusOfItsOwn() {
        const of = { namespace: 'default', name: 'web' };
        const labels = { app: 'web' };
        const template = { metadata: { labels }, spec: { containers: [{ name: 'web', image: 'nginx' }] } };
        const body = { metadata: { name: 'web' }, spec: { selector: { matchLabels: labels }, template } };
        const created = await apps.createNamespacedDeployment({ namespace: 'default', body });
        assert.deepEqual([created.spec.replicas, created.spec.strategy.type], [1, 'RollingUpdate']);
        const change = { status: { replicas: 3 }, spec: { replicas: 9 } };
        const answer = await apps.patchNamespacedDeploymentStatus({ ...of, body: change }, patchAs(k8s.PatchStrategy.MergePatch));
        assert.deepEqual([answer.spec.replicas, answer.status.replicas], [1, 3]);
        const scale = await apps.readNamespacedDeploymentScale(of);
        assert.deepEqual([scale.spec.replicas, scale.status.replicas, scale.status.selector], [1, 3, 'app=web']);
        scale.spec.replicas = 4;
        assert.equal((await apps.replaceNamespacedDeploymentScale({ ...of, body: scale })).spec.replicas, 4);
    },

    async aCollectionIsDeletedBySelector() {
        const namespace = await namespaced('emptied');
        for (const name of 'abc') await core.createNamespacedConfigMap({ namespace, body: configMap(name, { keep: `${name === 'c'}` }) });
        await core.deleteCollectionNamespacedConfigMap({ namespace, labelSelector: 'keep=false' });
        assert.deepEqual(names(await core.listNamespacedConfigMap({ namespace })), ['c']);
    },

    async objectsOfAnyKindAreUsedByTheirKind() {
        const objects = k8s.KubernetesObjectApi.makeApiClient(config);
        const one = { apiVersion: 'v1', kind: 'Secret', metadata: { name: 'one', namespace: 'default' }, stringData: { a: 'b' } };
        const created = await objects.create(one);
        assert.equal(created.data.a, 'Yg==');
        assert.equal((await objects.read(one)).metadata.uid, created.metadata.uid);
        await objects.delete(one);
        await refused(404, 'NotFound', objects.read(one));
    },
};

(async () => {
    let failed = 0;
    for (const [name, fact] of Object.entries(facts)) {
        try {
            await fact();
            console.log('ok', name);
        } catch (error) {
            failed += 1;
            console.log('FAILED', name, error);
        }
    }
    // An open watch would keep the process.
    process.exit(failed);
})();
