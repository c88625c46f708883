// Command facts prints what Go's reflection knows about the Kubernetes API types, as two tables:
// types.tsv (one row per type) and fields.tsv (one row per JSON field, in struct order).
//
// It is run by hand when the Kubernetes version moves: go run . ../../crates/schema/facts
// The other tables there are not printed by this program and are to be checked by hand against the new version:
// api-resources, list-and-merge-keys, and defaults (the non-zero defaults of upstream's generated OpenAPI definitions).
package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	apps "k8s.io/api/apps/v1"
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batch "k8s.io/api/batch/v1"
	certificates "k8s.io/api/certificates/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	events "k8s.io/api/events/v1"
	flowcontrol "k8s.io/api/flowcontrol/v1"
	networking "k8s.io/api/networking/v1"
	node "k8s.io/api/node/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	scheduling "k8s.io/api/scheduling/v1"
	storage "k8s.io/api/storage/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// groups register every kind of each served group version.
var groups = []struct {
	version  schema.GroupVersion
	register func(*runtime.Scheme) error
}{
	{core.SchemeGroupVersion, core.AddToScheme},
	{admissionregistration.SchemeGroupVersion, admissionregistration.AddToScheme},
	{apiextensions.SchemeGroupVersion, apiextensions.AddToScheme},
	{apiregistration.SchemeGroupVersion, apiregistration.AddToScheme},
	{apps.SchemeGroupVersion, apps.AddToScheme},
	{authentication.SchemeGroupVersion, authentication.AddToScheme},
	{authorization.SchemeGroupVersion, authorization.AddToScheme},
	{autoscalingv1.SchemeGroupVersion, autoscalingv1.AddToScheme},
	{autoscalingv2.SchemeGroupVersion, autoscalingv2.AddToScheme},
	{batch.SchemeGroupVersion, batch.AddToScheme},
	{certificates.SchemeGroupVersion, certificates.AddToScheme},
	{coordination.SchemeGroupVersion, coordination.AddToScheme},
	{discovery.SchemeGroupVersion, discovery.AddToScheme},
	{events.SchemeGroupVersion, events.AddToScheme},
	{flowcontrol.SchemeGroupVersion, flowcontrol.AddToScheme},
	{networking.SchemeGroupVersion, networking.AddToScheme},
	{node.SchemeGroupVersion, node.AddToScheme},
	{policy.SchemeGroupVersion, policy.AddToScheme},
	{rbac.SchemeGroupVersion, rbac.AddToScheme},
	{resourceapi.SchemeGroupVersion, resourceapi.AddToScheme},
	{scheduling.SchemeGroupVersion, scheduling.AddToScheme},
	{storage.SchemeGroupVersion, storage.AddToScheme},
}

// leaves are the types with a JSON form of their own.
var leaves = map[reflect.Type]string{
	reflect.TypeOf(meta.Time{}):                                  "time",
	reflect.TypeOf(meta.MicroTime{}):                             "microtime",
	reflect.TypeOf(meta.Duration{}):                              "duration",
	reflect.TypeOf(meta.FieldsV1{}):                              "fields",
	reflect.TypeOf(resource.Quantity{}):                          "quantity",
	reflect.TypeOf(intstr.IntOrString{}):                         "int-or-string",
	reflect.TypeOf(runtime.RawExtension{}):                       "raw",
	reflect.TypeOf(apiextensions.JSON{}):                         "json",
	reflect.TypeOf(apiextensions.JSONSchemaPropsOrBool{}):        "schema-or-bool",
	reflect.TypeOf(apiextensions.JSONSchemaPropsOrArray{}):       "schema-or-list",
	reflect.TypeOf(apiextensions.JSONSchemaPropsOrStringArray{}): "schema-or-strings",
}

type printer struct {
	types, fields *bufio.Writer
	seen          map[reflect.Type]bool
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: facts DIRECTORY")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "facts:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	types, err := os.Create(filepath.Join(dir, "types.tsv"))
	if err != nil {
		return err
	}
	defer types.Close()
	fields, err := os.Create(filepath.Join(dir, "fields.tsv"))
	if err != nil {
		return err
	}
	defer fields.Close()
	p := printer{bufio.NewWriter(types), bufio.NewWriter(fields), map[reflect.Type]bool{}}
	fmt.Fprintln(p.types, "type\tgoType\tshape\telement\tkind")
	fmt.Fprintln(p.fields, "type\tfield\tfieldType\tflags\tembedded")
	for _, group := range groups {
		if err := p.group(group.version, group.register); err != nil {
			return err
		}
	}
	if err := p.types.Flush(); err != nil {
		return err
	}
	return p.fields.Flush()
}

func (p *printer) group(version schema.GroupVersion, register func(*runtime.Scheme) error) error {
	scheme := runtime.NewScheme()
	if err := register(scheme); err != nil {
		return err
	}
	kinds := scheme.KnownTypes(version)
	for _, name := range sorted(kinds) {
		if name == "WatchEvent" { // its object is of any kind: not a type of this table
			continue
		}
		kind := version.WithKind(name)
		label := ""
		if kinds[name].PkgPath() == packageOf(version) {
			label = kind.GroupVersion().String() + "/" + name
		}
		p.visit(kinds[name], label)
	}
	return nil
}

// packageOf tells apart a group's own kinds from the meta kinds (DeleteOptions ...) registered with every group.
func packageOf(version schema.GroupVersion) string {
	for _, sample := range []struct {
		version schema.GroupVersion
		value   any
	}{
		{core.SchemeGroupVersion, core.Pod{}}, {admissionregistration.SchemeGroupVersion, admissionregistration.Rule{}},
		{apiextensions.SchemeGroupVersion, apiextensions.JSON{}}, {apiregistration.SchemeGroupVersion, apiregistration.APIService{}},
		{apps.SchemeGroupVersion, apps.Deployment{}}, {authentication.SchemeGroupVersion, authentication.TokenReview{}},
		{authorization.SchemeGroupVersion, authorization.SubjectAccessReview{}}, {autoscalingv1.SchemeGroupVersion, autoscalingv1.Scale{}},
		{autoscalingv2.SchemeGroupVersion, autoscalingv2.MetricSpec{}}, {batch.SchemeGroupVersion, batch.Job{}},
		{certificates.SchemeGroupVersion, certificates.CertificateSigningRequest{}}, {coordination.SchemeGroupVersion, coordination.Lease{}},
		{discovery.SchemeGroupVersion, discovery.EndpointSlice{}}, {events.SchemeGroupVersion, events.Event{}},
		{flowcontrol.SchemeGroupVersion, flowcontrol.FlowSchema{}}, {networking.SchemeGroupVersion, networking.Ingress{}},
		{node.SchemeGroupVersion, node.RuntimeClass{}}, {policy.SchemeGroupVersion, policy.Eviction{}},
		{rbac.SchemeGroupVersion, rbac.Role{}}, {resourceapi.SchemeGroupVersion, resourceapi.ResourceSlice{}},
		{scheduling.SchemeGroupVersion, scheduling.PriorityClass{}}, {storage.SchemeGroupVersion, storage.CSINode{}},
	} {
		if sample.version == version {
			return reflect.TypeOf(sample.value).PkgPath()
		}
	}
	return ""
}

func sorted(kinds map[string]reflect.Type) []string {
	names := make([]string, 0, len(kinds))
	for name := range kinds {
		names = append(names, name)
	}
	for i := range names {
		for j := i; j > 0 && names[j] < names[j-1]; j-- {
			names[j], names[j-1] = names[j-1], names[j]
		}
	}
	return names
}

// visit prints a type and all it reaches, each once.
func (p *printer) visit(t reflect.Type, kind string) {
	if p.seen[t] {
		return
	}
	p.seen[t] = true
	shape, element := p.shape(t)
	elementName := ""
	if element != nil {
		elementName = name(element)
	}
	fmt.Fprintf(p.types, "%s\t%s\t%s\t%s\t%s\n", name(t), t.String(), shape, elementName, kind)
	if element != nil {
		p.visit(direct(element), "")
	}
	if shape == "struct" {
		var reached []reflect.Type
		p.structFields(t, t, "", &reached)
		for _, next := range reached {
			p.visit(next, "")
		}
	}
}

func (p *printer) shape(t reflect.Type) (string, reflect.Type) {
	if leaf, ok := leaves[t]; ok {
		if strings.HasPrefix(leaf, "schema-or-") {
			return leaf, reflect.TypeOf(apiextensions.JSONSchemaProps{})
		}
		return leaf, nil
	}
	switch t.Kind() {
	case reflect.Struct:
		return "struct", nil
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes", nil
		}
		return "list", t.Elem()
	case reflect.Map:
		return "map", t.Elem()
	case reflect.Bool, reflect.String, reflect.Int32, reflect.Int64, reflect.Int, reflect.Uint8, reflect.Float64:
		return t.Kind().String(), nil
	default:
		panic(fmt.Sprintf("no shape for %s", t))
	}
}

// structFields prints the JSON fields of t as fields of owner; within names the embedded structs passed on the way,
// because Go names them in its errors.
func (p *printer) structFields(owner, t reflect.Type, within string, reached *[]reflect.Type) {
	for i := range t.NumField() {
		field := t.Field(i)
		tag, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if tag == "-" || !field.IsExported() {
			continue
		}
		if tag == "" && field.Anonymous {
			p.structFields(owner, direct(field.Type), within+field.Name+".", reached)
			continue
		}
		if tag == "" {
			tag = field.Name
		}
		var flags []string
		if field.Type.Kind() == reflect.Pointer {
			flags = append(flags, "pointer")
		}
		for _, option := range strings.Split(options, ",") {
			if option == "omitempty" || option == "omitzero" {
				flags = append(flags, option)
			}
		}
		fmt.Fprintf(p.fields, "%s\t%s\t%s\t%s\t%s\n", name(owner), tag, name(direct(field.Type)), strings.Join(flags, ","), within)
		*reached = append(*reached, direct(field.Type))
	}
}

func direct(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// name is the OpenAPI name of a named type, and the Go form with OpenAPI names inside for the others.
func name(t reflect.Type) string {
	if t.Name() != "" {
		if t.PkgPath() == "" {
			return t.Name()
		}
		host, path, _ := strings.Cut(t.PkgPath(), "/")
		parts := strings.Split(host, ".")
		for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
			parts[i], parts[j] = parts[j], parts[i]
		}
		return strings.Join(parts, ".") + "." + strings.ReplaceAll(path, "/", ".") + "." + t.Name()
	}
	switch t.Kind() {
	case reflect.Slice:
		return "[]" + name(t.Elem())
	case reflect.Map:
		return "map[" + name(t.Key()) + "]" + name(t.Elem())
	case reflect.Pointer:
		return "*" + name(t.Elem())
	default:
		panic(fmt.Sprintf("no name for %s", t))
	}
}
