// Command cel prints what cel-go with the libraries of Kubernetes says about expressions.
//
//	go run . answers ../../crates/schema/facts > answers && mv answers ../../crates/schema/facts/cel-answers.tsv
//	go run . functions | diff ../../crates/schema/facts/cel-functions.tsv -
//
// The first evaluates again every expression that stands in the first column of cel-answers.tsv, on the object in cel-object.json:
// to ask about another one, add a line with it (as a JSON text) and run this. The second lists every function with its overloads; the
// table leaves out the names that parsers no longer use for `in`, and has `jsonpatch.escapeKey` of mutating policies besides.
// It is run by hand, when the version of Kubernetes moves or an expression is added.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	schemacel "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	kubejson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/version"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
)

// costMax is what one rule may cost at run time.
const costMax = 1_000_000

func main() {
	log.SetFlags(0)
	base := environment.MustBaseEnvSet(version.MajorMinor(1, 36))
	switch {
	case len(os.Args) == 2 && os.Args[1] == "functions":
		printFunctions(base.NewExpressionsEnv())
	case len(os.Args) == 3 && os.Args[1] == "answers":
		printAnswers(base, os.Args[2])
	default:
		log.Fatal("usage: cel functions | cel answers FOLDER")
	}
}

func printFunctions(env *cel.Env) {
	functions := env.Functions()
	names := make([]string, 0, len(functions))
	for name := range functions {
		names = append(names, name)
	}
	sort.Strings(names)
	fmt.Println("# The functions of CEL and of Kubernetes 1.36: name, overload, style, arguments, result.")
	for _, name := range names {
		for _, overload := range functions[name].OverloadDecls() {
			kind := "global"
			if overload.IsMemberFunction() {
				kind = "member"
			}
			var args []string
			for _, ty := range overload.ArgTypes() {
				args = append(args, cel.FormatCELType(ty))
			}
			result := cel.FormatCELType(overload.ResultType())
			fmt.Println(strings.Join([]string{name, overload.ID(), kind, strings.Join(args, "; "), result}, "\t"))
		}
	}
}

func printAnswers(base *environment.EnvSet, folder string) {
	var about struct {
		Schema v1.JSONSchemaProps `json:"schema"`
		Self   json.RawMessage    `json:"self"`
	}
	check(json.Unmarshal(read(folder, "cel-object.json"), &about))
	var internal apiextensions.JSONSchemaProps
	check(v1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&about.Schema, &internal, nil))
	structural, err := schema.NewStructural(&internal)
	check(err)
	structural = model.WithTypeAndObjectMeta(structural)
	root := model.SchemaDeclType(structural, true).MaybeAssignTypeName("selfType")
	variables := []cel.EnvOption{cel.Variable("self", root.CelType()), cel.Variable("oldSelf", root.CelType())}
	extended, err := base.Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions:        variables,
		DeclTypes:         []*apiservercel.DeclType{root},
	})
	check(err)
	var self any
	check(kubejson.Unmarshal(about.Self, &self))
	value := schemacel.UnstructuredToVal(self, structural)
	bindings, err := interpreter.NewActivation(map[string]any{"self": value, "oldSelf": value})
	check(err)
	asked := question{extended.NewExpressionsEnv(), bindings, &library.CostEstimator{SizeEstimator: &sizes{root}}}
	for _, line := range strings.Split(strings.TrimSuffix(string(read(folder, "cel-answers.tsv")), "\n"), "\n") {
		if strings.HasPrefix(line, "#") {
			fmt.Println(line)
			continue
		}
		quotedExpression, _, _ := strings.Cut(line, "\t")
		var expression string
		check(json.Unmarshal([]byte(quotedExpression), &expression))
		fmt.Println(quotedExpression + "\t" + asked.answer(expression))
	}
}

type question struct {
	env      *cel.Env
	bindings interpreter.Activation
	costs    *library.CostEstimator
}

// answer is the type, value, cost, least and most estimated cost of an expression.
func (q question) answer(expression string) string {
	ast, issues := q.env.Compile(expression)
	if issues != nil {
		return fmt.Sprintf("compile\t%s\t0\t0\t0", quoted(issues.String()))
	}
	estimate, err := q.env.EstimateCost(ast, q.costs)
	check(err)
	program, err := q.env.Program(ast, cel.CostLimit(costMax), cel.CostTracking(q.costs))
	if err != nil {
		return fmt.Sprintf("program\t%s\t0\t0\t0", quoted(err.Error()))
	}
	var cost uint64
	value, details, err := program.Eval(q.bindings)
	if details != nil && details.ActualCost() != nil {
		cost = *details.ActualCost()
	}
	shown := "error "
	if err != nil {
		shown += quoted(err.Error())
	} else {
		shown = show(value)
	}
	ty := cel.FormatCELType(ast.OutputType())
	return fmt.Sprintf("%s\t%s\t%d\t%d\t%d", ty, shown, cost, estimate.Min, estimate.Max)
}

// sizes says how large a part of the object can be, by its schema.
type sizes struct{ root *apiservercel.DeclType }

func (s *sizes) EstimateSize(element checker.AstNode) *checker.SizeEstimate {
	if len(element.Path()) == 0 {
		return nil
	}
	at := s.root
	for _, name := range element.Path()[1:] {
		switch name {
		case "@items", "@values":
			at = at.ElemType
		case "@keys":
			at = at.KeyType
		default:
			if field, ok := at.Fields[name]; ok {
				at = field.Type
			} else {
				at = nil
			}
		}
		if at == nil {
			return nil
		}
	}
	return &checker.SizeEstimate{Max: uint64(at.MaxElements)}
}

func (s *sizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}

func show(value ref.Val) string {
	if text, ok := value.(types.String); ok {
		return quoted(string(text))
	}
	return types.Format(value)
}

func quoted(text string) string {
	var encoded strings.Builder
	encoder := json.NewEncoder(&encoded)
	encoder.SetEscapeHTML(false)
	check(encoder.Encode(text))
	return strings.TrimSuffix(encoded.String(), "\n")
}

func read(folder, name string) []byte {
	content, err := os.ReadFile(filepath.Join(folder, name))
	check(err)
	return content
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
