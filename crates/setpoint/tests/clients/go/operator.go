package main

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

var operatorFacts = []fact{{"an operator on controller-runtime keeps a map for each box", anOperatorWorks}}

var boxKind = schema.GroupVersionKind{Group: "facts.example.com", Version: "v1", Kind: "Box"}

const definition = `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
  "metadata": {"name": "boxes.facts.example.com"},
  "spec": {"group": "facts.example.com", "scope": "Namespaced",
    "names": {"plural": "boxes", "singular": "box", "kind": "Box", "listKind": "BoxList"},
    "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
      "schema": {"openAPIV3Schema": {"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"size": {"type": "integer"}}},
        "status": {"type": "object", "properties": {"observedGeneration": {"type": "integer"}}}}}}}]}}`

const finalizer = "facts.example.com/box"

func box(name string, size int64) *unstructured.Unstructured {
	box := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": size}}}
	box.SetGroupVersionKind(boxKind)
	box.SetNamespace("default")
	box.SetName(name)
	return box
}

// keeper keeps a ConfigMap with the size of each Box.
type keeper struct {
	client.Client
	events record.EventRecorder
}

func (k *keeper) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	box := box(request.Name, 0)
	if err := k.Get(ctx, request.NamespacedName, box); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !box.GetDeletionTimestamp().IsZero() {
		if controllerutil.RemoveFinalizer(box, finalizer) {
			return ctrl.Result{}, k.Update(ctx, box)
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(box, finalizer) {
		return ctrl.Result{}, k.Update(ctx, box)
	}
	child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: request.Name, Namespace: request.Namespace}}
	result, err := controllerutil.CreateOrUpdate(ctx, k.Client, child, func() error {
		size, _, _ := unstructured.NestedInt64(box.Object, "spec", "size")
		child.Data = map[string]string{"size": fmt.Sprint(size)}
		return controllerutil.SetControllerReference(box, child, k.Scheme())
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	if result != controllerutil.OperationResultNone {
		k.events.Event(box, "Normal", "Kept", "its map is up to date")
	}
	before := box.DeepCopy()
	if err := unstructured.SetNestedField(box.Object, box.GetGeneration(), "status", "observedGeneration"); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, k.Status().Patch(ctx, box, client.MergeFrom(before))
}

func anOperatorWorks(ctx context.Context, config *rest.Config) error {
	log.SetLogger(logr.Discard())
	api, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return err
	}
	crd := &unstructured.Unstructured{}
	if err := first(crd.UnmarshalJSON([]byte(definition)), api.Create(ctx, crd)); err != nil {
		return err
	}
	if err := until(ctx, "the kind is served", func(ctx context.Context) bool {
		boxes := &unstructured.UnstructuredList{}
		boxes.SetGroupVersionKind(boxKind)
		return api.List(ctx, boxes) == nil
	}); err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme.Scheme, Metrics: server.Options{BindAddress: "0"},
		LeaderElection: true, LeaderElectionID: "keeper", LeaderElectionNamespace: "default", LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return err
	}
	size := func(object client.Object) []string { return []string{object.(*corev1.ConfigMap).Data["size"]} }
	keeper := &keeper{Client: manager.GetClient(), events: manager.GetEventRecorderFor("keeper")}
	if err := first(
		manager.GetFieldIndexer().IndexField(ctx, &corev1.ConfigMap{}, "size", size),
		ctrl.NewControllerManagedBy(manager).For(box("", 0)).Owns(&corev1.ConfigMap{}).Complete(keeper),
	); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(running) }()
	if err := boxesAreKept(ctx, api, manager.GetClient()); err != nil {
		return err
	}
	stop()
	return first(<-ended, api.Delete(ctx, crd))
}

func boxesAreKept(ctx context.Context, api, cached client.Client) error {
	for i := range int64(5) {
		if err := api.Create(ctx, box(fmt.Sprintf("box%d", i), i)); err != nil {
			return err
		}
	}
	if err := until(ctx, "the map of size 3 is found by its index", func(ctx context.Context) bool {
		maps := &corev1.ConfigMapList{}
		err := cached.List(ctx, maps, client.InNamespace("default"), client.MatchingFields{"size": "3"})
		return err == nil && len(maps.Items) == 1 && maps.Items[0].Name == "box3"
	}); err != nil {
		return err
	}
	has := func(name, size string) error {
		return until(ctx, name+" has size "+size, func(ctx context.Context) bool {
			child := &corev1.ConfigMap{}
			err := api.Get(ctx, types.NamespacedName{Namespace: "default", Name: name}, child)
			return err == nil && child.Data["size"] == size
		})
	}
	gone := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "box3", Namespace: "default"}}
	if err := first(api.Delete(ctx, gone), has("box3", "3")); err != nil {
		return err
	}
	applied := api.Patch(ctx, box("box1", 7), client.Apply, client.FieldOwner("facts"), client.ForceOwnership)
	if err := first(applied, has("box1", "7")); err != nil {
		return err
	}
	old := box("box2", 0)
	if err := api.Get(ctx, client.ObjectKeyFromObject(old), old); err != nil {
		return err
	}
	old.SetResourceVersion("1")
	lock := client.MergeFromWithOptions(old.DeepCopy(), client.MergeFromWithOptimisticLock{})
	old.SetLabels(map[string]string{"a": "b"})
	conflict := api.Patch(ctx, old, lock)
	if err := expect(apierrors.IsConflict(conflict), "an old version is a conflict", conflict); err != nil {
		return err
	}
	if err := api.DeleteAllOf(ctx, box("", 0), client.InNamespace("default")); err != nil {
		return err
	}
	return until(ctx, "all maps are gone", func(ctx context.Context) bool {
		maps := &corev1.ConfigMapList{}
		if api.List(ctx, maps, client.InNamespace("default")) != nil {
			return false
		}
		for _, child := range maps.Items {
			if len(child.OwnerReferences) > 0 {
				return false
			}
		}
		return true
	})
}
