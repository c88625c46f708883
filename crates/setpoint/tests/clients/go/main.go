// The Go clients against the control plane that KUBECONFIG names: one function for each fact.
//
// client.go is client-go with bodies in protobuf, as controllers of Kubernetes have it; operator.go is an operator on
// controller-runtime. Both are unchanged from upstream.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

type fact struct {
	name string
	is   func(context.Context, *rest.Config) error
}

func main() {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		panic(err)
	}
	config.QPS, config.Burst = 500, 500
	failures := 0
	for _, fact := range append(clientFacts, operatorFacts...) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		if err := fact.is(ctx, config); err != nil {
			failures++
			fmt.Printf("%s: %v\n", fact.name, err)
		}
		cancel()
	}
	if failures > 0 {
		os.Exit(1)
	}
}

// until asks again and again whether something has come true.
func until(ctx context.Context, what string, holds func(context.Context) bool) error {
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		return holds(ctx), nil
	})
	if err != nil {
		return fmt.Errorf("%s never came true: %w", what, err)
	}
	return nil
}

// expect is an error unless something holds.
func expect(holds bool, what string, found ...any) error {
	if holds {
		return nil
	}
	return fmt.Errorf("%s; found %v", what, found)
}

// first is the first error of several.
func first(errors ...error) error {
	for _, err := range errors {
		if err != nil {
			return err
		}
	}
	return nil
}
