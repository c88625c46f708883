package main

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"
)

var clientFacts = []fact{
	{"discovery is read whole", discoveryIsReadWhole},
	{"informers of all usual kinds get in step", informersGetInStep},
	{"a Deployment is made, scaled, changed and taken away", lifeOfADeployment},
	{"a Job completes", aJobCompletes},
	{"errors are those that the client knows", errorsAreKnown},
	{"a watch brings bytes as they were", aWatchBringsBytes},
	{"dynamic and metadata informers get in step", informersWithoutTypes},
	{"a leader is elected and lets go", aLeaderIsElected},
	{"a namespace goes with all that is in it", aNamespaceGoes},
}

// protobuf is a client that writes protobuf and takes JSON too.
func protobuf(config *rest.Config) *kubernetes.Clientset {
	config = rest.CopyConfig(config)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	return kubernetes.NewForConfigOrDie(config)
}

func discoveryIsReadWhole(_ context.Context, config *rest.Config) error {
	client := protobuf(config).Discovery()
	groups, resources, err := discovery.ServerGroupsAndResources(client)
	if err := first(err, expect(len(groups) > 20 && len(resources) > 20, "there are many groups", len(groups))); err != nil {
		return err
	}
	_, two := client.OpenAPISchema()
	paths, three := client.OpenAPIV3().Paths()
	return first(two, three, expect(len(paths) > 20, "each group has its document", len(paths)))
}

func informersGetInStep(ctx context.Context, config *rest.Config) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	factory := informers.NewSharedInformerFactory(protobuf(config), 0)
	for _, resource := range []schema.GroupVersionResource{
		{Version: "v1", Resource: "pods"}, {Version: "v1", Resource: "nodes"}, {Version: "v1", Resource: "services"},
		{Version: "v1", Resource: "secrets"}, {Version: "v1", Resource: "configmaps"}, {Version: "v1", Resource: "events"},
		{Version: "v1", Resource: "namespaces"}, {Version: "v1", Resource: "persistentvolumes"},
		{Version: "v1", Resource: "persistentvolumeclaims"}, {Version: "v1", Resource: "serviceaccounts"},
		{Version: "v1", Resource: "resourcequotas"}, {Version: "v1", Resource: "limitranges"},
		{Group: "apps", Version: "v1", Resource: "deployments"}, {Group: "apps", Version: "v1", Resource: "replicasets"},
		{Group: "apps", Version: "v1", Resource: "statefulsets"}, {Group: "apps", Version: "v1", Resource: "daemonsets"},
		{Group: "apps", Version: "v1", Resource: "controllerrevisions"},
		{Group: "batch", Version: "v1", Resource: "jobs"}, {Group: "batch", Version: "v1", Resource: "cronjobs"},
		{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"},
		{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
		{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"},
		{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"},
		{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
		{Group: "storage.k8s.io", Version: "v1", Resource: "storageclasses"},
		{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
		{Group: "scheduling.k8s.io", Version: "v1", Resource: "priorityclasses"},
		{Group: "certificates.k8s.io", Version: "v1", Resource: "certificatesigningrequests"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"},
		{Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Resource: "flowschemas"},
		{Group: "resource.k8s.io", Version: "v1", Resource: "resourceclaims"},
	} {
		informer, err := factory.ForResource(resource)
		if err != nil {
			return err
		}
		informer.Informer()
	}
	factory.Start(ctx.Done())
	limited, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	for kind, synced := range factory.WaitForCacheSync(limited.Done()) {
		if !synced {
			return fmt.Errorf("%v did not get in step", kind)
		}
	}
	return nil
}

func web(replicas int32) *appsv1.Deployment {
	chosen := map[string]string{"app": "web"}
	pod := corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: chosen},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: chosen},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: chosen}, Spec: pod},
		},
	}
}

func lifeOfADeployment(ctx context.Context, config *rest.Config) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client := protobuf(config)
	deployments := client.AppsV1().Deployments("default")
	factory := informers.NewSharedInformerFactory(client, 0)
	lister := factory.Apps().V1().Deployments().Lister().Deployments("default")
	pods := factory.Core().V1().Pods().Lister().Pods("default")
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())

	made, err := deployments.Create(ctx, web(2), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	ready := func(count int32) error {
		return until(ctx, fmt.Sprintf("%d are ready", count), func(context.Context) bool {
			deployment, err := lister.Get("web")
			return err == nil && deployment.Status.ReadyReplicas == count && deployment.Status.Replicas == count
		})
	}
	if err := ready(2); err != nil {
		return err
	}
	scale, err := deployments.GetScale(ctx, "web", metav1.GetOptions{})
	if err != nil {
		return err
	}
	scale.Spec.Replicas = 3
	_, scaled := deployments.UpdateScale(ctx, "web", scale, metav1.UpdateOptions{})
	if err := first(scaled, ready(3)); err != nil {
		return err
	}
	changed := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		deployment, err := deployments.Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		deployment.Spec.Template.Annotations = map[string]string{"version": "2"}
		_, err = deployments.Update(ctx, deployment, metav1.UpdateOptions{})
		return err
	})
	_, stale := deployments.Update(ctx, made, metav1.UpdateOptions{})
	strategic := []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"web","env":[{"name":"A","value":"b"}]}]}}}}`)
	_, patched := deployments.Patch(ctx, "web", types.StrategicMergePatchType, strategic, metav1.PatchOptions{})
	applied := []byte(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","annotations":{"by":"apply"}}}`)
	after, err := deployments.Patch(ctx, "web", types.ApplyPatchType, applied, metav1.PatchOptions{FieldManager: "facts"})
	if err := first(changed, expect(apierrors.IsConflict(stale), "an old version is a conflict", stale), patched, err); err != nil {
		return err
	}
	container := after.Spec.Template.Spec.Containers[0]
	if err := expect(container.Image == "web:1" && container.Env[0].Value == "b", "both patches hold", container); err != nil {
		return err
	}
	listed, err := pods.List(labels.SelectorFromSet(labels.Set{"app": "web"}))
	if err != nil || len(listed) == 0 {
		return fmt.Errorf("no pods in the lister: %v", err)
	}
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: listed[0].Name, Namespace: "default"}}
	if err := client.PolicyV1().Evictions("default").Evict(ctx, eviction); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	running, err := client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{FieldSelector: "status.phase=Running", Limit: 1})
	if err := first(err, expect(len(running.Items) == 1, "one page of one", len(running.Items))); err != nil {
		return err
	}
	foreground := metav1.DeletePropagationForeground
	if err := deployments.Delete(ctx, "web", metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
		return err
	}
	return until(ctx, "all pods are gone", func(context.Context) bool {
		left, err := pods.List(labels.Everything())
		return err == nil && len(left) == 0
	})
}

func aJobCompletes(ctx context.Context, config *rest.Config) error {
	jobs := protobuf(config).BatchV1().Jobs("default")
	container := corev1.Container{Name: "sum", Image: "sum:1", Command: []string{"sh", "-c", "exit 0"}}
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: "Never", Containers: []corev1.Container{container}}}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "sum"}, Spec: batchv1.JobSpec{Template: template}}
	if _, err := jobs.Create(ctx, job, metav1.CreateOptions{}); err != nil {
		return err
	}
	return until(ctx, "it is complete", func(ctx context.Context) bool {
		job, err := jobs.Get(ctx, "sum", metav1.GetOptions{})
		return err == nil && job.Status.Succeeded == 1 && job.Status.CompletionTime != nil
	})
}

func errorsAreKnown(ctx context.Context, config *rest.Config) error {
	core := protobuf(config).CoreV1()
	_, invalid := core.Pods("default").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "Bad_Name"}}, metav1.CreateOptions{})
	_, missing := core.Pods("default").Get(ctx, "nobody", metav1.GetOptions{})
	twice := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	_, exists := core.Namespaces().Create(ctx, twice, metav1.CreateOptions{})
	nobody := rest.AnonymousClientConfig(config)
	_, refused := kubernetes.NewForConfigOrDie(nobody).CoreV1().Secrets("default").List(ctx, metav1.ListOptions{})
	return first(
		expect(apierrors.IsInvalid(invalid), "a bad name is invalid", invalid),
		expect(apierrors.IsNotFound(missing), "what isn't there is not found", missing),
		expect(apierrors.IsAlreadyExists(exists), "a name is given once", exists),
		expect(apierrors.IsForbidden(refused) || apierrors.IsUnauthorized(refused), "nobody gets nothing", refused),
	)
}

func aWatchBringsBytes(ctx context.Context, config *rest.Config) error {
	maps := protobuf(config).CoreV1().ConfigMaps("default")
	watch, err := maps.Watch(ctx, metav1.ListOptions{LabelSelector: "facts=bytes"})
	if err != nil {
		return err
	}
	defer watch.Stop()
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "bytes", Labels: map[string]string{"facts": "bytes"}},
		BinaryData: map[string][]byte{"raw": {0, 1, 255}},
	}
	if _, err := maps.Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return err
	}
	event := <-watch.ResultChan()
	seen, is := event.Object.(*corev1.ConfigMap)
	return expect(is && string(seen.BinaryData["raw"]) == "\x00\x01\xff", "the bytes are the same", event)
}

func informersWithoutTypes(ctx context.Context, config *rest.Config) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	namespaces := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	dynamics := dynamicinformer.NewDynamicSharedInformerFactory(dynamic.NewForConfigOrDie(config), 0)
	whole := dynamics.ForResource(namespaces).Informer()
	dynamics.Start(ctx.Done())
	metas := metadatainformer.NewSharedInformerFactory(metadata.NewForConfigOrDie(metadata.ConfigFor(config)), 0)
	only := metas.ForResource(namespaces).Informer()
	metas.Start(ctx.Done())
	dynamics.WaitForCacheSync(ctx.Done())
	metas.WaitForCacheSync(ctx.Done())
	return expect(len(whole.GetStore().List()) >= 4 && len(only.GetStore().List()) >= 4, "both know all namespaces")
}

func aLeaderIsElected(ctx context.Context, config *rest.Config) error {
	client := protobuf(config)
	ctx, cancel := context.WithCancel(ctx)
	leads, stopped := make(chan struct{}), make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Name: "facts", Namespace: "default"},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: "one"},
		},
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(leads) },
			OnStoppedLeading: func() { close(stopped) },
		},
	})
	if err != nil {
		cancel()
		return err
	}
	go elector.Run(ctx)
	select {
	case <-leads:
	case <-ctx.Done():
		cancel()
		return fmt.Errorf("nobody leads")
	}
	lease, err := client.CoordinationV1().Leases("default").Get(ctx, "facts", metav1.GetOptions{})
	cancel()
	<-stopped
	return first(err, expect(lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity == "one", "the lease names it"))
}

func aNamespaceGoes(ctx context.Context, config *rest.Config) error {
	core := protobuf(config).CoreV1()
	made, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "facts-"}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "inside"}}
	if _, err := core.ConfigMaps(made.Name).Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := core.Namespaces().Delete(ctx, made.Name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return until(ctx, "it is gone", func(ctx context.Context) bool {
		_, err := core.Namespaces().Get(ctx, made.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}
