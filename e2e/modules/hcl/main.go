// Evaluates the variables and locals of a Terraform module and prints the locals as JSON: hcl MODULE [TFVARS...] [-- NAME=JSON...]
//
// It is not Terraform: it knows no provider, no resource and no state, and takes data sources from a table below. What it does
// find: files that do not parse or are not formatted, references to what is not there, conditions whose sides have different
// types, validations of variables that fail, and what the module's expressions come to for given inputs.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/tryfunc"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
	ctyjson "github.com/zclconf/go-cty/cty/json"
)

// What data sources say in a run.
const data = `{
  "aws_partition": {"this": {"partition": "aws"}},
  "aws_caller_identity": {"this": {"account_id": "111122223333"}},
  "aws_region": {"this": {"name": "ap-northeast-2"}},
  "aws_eks_cluster_auth": {"this": [{"token": "token"}]},
  "aws_eks_cluster": {"this": [{
    "endpoint": "https://aws.example", "certificate_authority": [{"data": "YXdz"}],
    "identity": [{"oidc": [{"issuer": "https://oidc.aws.example/id/AWS"}]}]}]},
  "terraform_remote_state": {
    "eks": [{"outputs": {"cluster_name": "from-state", "cluster_endpoint": "https://state.example",
      "cluster_certificate_authority_data": "c3RhdGU=", "oidc_provider": "oidc.state.example/id/STATE",
      "oidc_provider_arn": "arn:aws:iam::111122223333:oidc-provider/oidc.state.example/id/STATE"}}],
    "network": [{"outputs": {"private_subnets": ["subnet-1", "subnet-2"]}}]}
}`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type module struct {
	variables map[string]*hclsyntax.Block
	locals    map[string]hcl.Expression
	resources map[string]bool
	bodies    []*hclsyntax.Body
}

func run(arguments []string) error {
	if len(arguments) == 0 {
		return errors.New("usage: hcl MODULE [TFVARS...] [-- NAME=JSON...]")
	}
	parsed, err := read(arguments[0])
	if err != nil {
		return err
	}
	if err := parsed.checkReferences(); err != nil {
		return err
	}
	variables, err := parsed.inputs(arguments[1:])
	if err != nil {
		return err
	}
	sources, err := value(data)
	if err != nil {
		return err
	}
	context := &hcl.EvalContext{
		Functions: functions(),
		Variables: map[string]cty.Value{
			"var": cty.ObjectVal(variables), "data": sources,
			"path": cty.ObjectVal(map[string]cty.Value{"module": cty.StringVal(".")}),
		},
	}
	if err := parsed.validate(context); err != nil {
		return err
	}
	locals, err := parsed.evaluate(context)
	if err != nil {
		return err
	}
	text, err := ctyjson.SimpleJSONValue{Value: locals}.MarshalJSON()
	if err != nil {
		return err
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, text, "", " "); err != nil {
		return err
	}
	fmt.Println(indented.String())
	return nil
}

func read(folder string) (*module, error) {
	result := &module{variables: map[string]*hclsyntax.Block{}, locals: map[string]hcl.Expression{}, resources: map[string]bool{}}
	files, err := filepath.Glob(filepath.Join(folder, "*.tf"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("%s: no .tf files", folder)
	}
	examples, _ := filepath.Glob(filepath.Join(folder, "*", "*.tfvars"))
	for _, file := range append(files, examples...) {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(hclwrite.Format(text), text) {
			if os.Getenv("HCL_FORMAT") == "" {
				return nil, fmt.Errorf("%s: not formatted as `terraform fmt` would", file)
			}
			if err := os.WriteFile(file, hclwrite.Format(text), 0o644); err != nil {
				return nil, err
			}
		}
	}
	parser := hclparse.NewParser()
	for _, file := range files {
		parsed, diagnostics := parser.ParseHCLFile(file)
		if diagnostics.HasErrors() {
			return nil, diagnostics
		}
		body := parsed.Body.(*hclsyntax.Body)
		result.bodies = append(result.bodies, body)
		for _, block := range body.Blocks {
			switch block.Type {
			case "variable":
				result.variables[block.Labels[0]] = block
			case "locals":
				for name, attribute := range block.Body.Attributes {
					result.locals[name] = attribute.Expr
				}
			case "resource":
				result.resources[strings.Join(block.Labels, ".")] = true
			case "data":
				result.resources["data."+strings.Join(block.Labels, ".")] = true
			}
		}
	}
	return result, nil
}

// Every name that is used must be defined somewhere.
func (parsed *module) checkReferences() error {
	var missing []string
	for _, body := range parsed.bodies {
		walk(body, func(expression hclsyntax.Expression) {
			for _, traversal := range expression.Variables() {
				name := path(traversal)
				parts := strings.Split(name, ".")
				known := true
				switch parts[0] {
				case "var":
					_, known = parsed.variables[parts[1]]
				case "local":
					_, known = parsed.locals[parts[1]]
				case "data":
					known = len(parts) > 2 && parsed.resources[strings.Join(parts[:3], ".")]
				case "each", "self", "path", "count", "string", "bool", "number", "any":
				default:
					known = len(parts) > 1 && parsed.resources[strings.Join(parts[:2], ".")]
				}
				if !known {
					missing = append(missing, fmt.Sprintf("%s: nothing is called %s", traversal.SourceRange(), name))
				}
			}
		})
	}
	if len(missing) > 0 {
		sort.Strings(missing)
		return errors.New(strings.Join(missing, "\n"))
	}
	return nil
}

func walk(body *hclsyntax.Body, visit func(hclsyntax.Expression)) {
	for name, attribute := range body.Attributes {
		// Types and moments are written like expressions and are none.
		if name != "type" && name != "when" {
			visit(attribute.Expr)
		}
	}
	for _, block := range body.Blocks {
		if block.Type != "required_providers" {
			walk(block.Body, visit)
		}
	}
}

func path(traversal hcl.Traversal) string {
	var parts []string
	for _, step := range traversal {
		switch step := step.(type) {
		case hcl.TraverseRoot:
			parts = append(parts, step.Name)
		case hcl.TraverseAttr:
			parts = append(parts, step.Name)
		}
	}
	return strings.Join(parts, ".")
}

// Defaults, then files, then single values.
func (parsed *module) inputs(arguments []string) (map[string]cty.Value, error) {
	values := map[string]cty.Value{}
	for name, block := range parsed.variables {
		fallback, diagnostics := block.Body.Attributes["default"].Expr.Value(nil)
		if diagnostics.HasErrors() {
			return nil, diagnostics
		}
		values[name] = fallback
	}
	// The only variable with optional attributes: their names are their defaults' second argument.
	if block, found := parsed.variables["state_outputs"]; found {
		optional := map[string]cty.Value{}
		call := block.Body.Attributes["type"].Expr.(*hclsyntax.FunctionCallExpr).Args[0].(*hclsyntax.ObjectConsExpr)
		for _, item := range call.Items {
			fallback, _ := item.ValueExpr.(*hclsyntax.FunctionCallExpr).Args[1].Value(nil)
			optional[hcl.ExprAsKeyword(item.KeyExpr)] = fallback
		}
		values["state_outputs"] = cty.ObjectVal(optional)
	}
	parser := hclparse.NewParser()
	for position, argument := range arguments {
		if argument == "--" {
			for _, single := range arguments[position+1:] {
				name, text, _ := strings.Cut(single, "=")
				given, err := value(text)
				if err != nil {
					return nil, err
				}
				values[name] = given
			}
			break
		}
		file, diagnostics := parser.ParseHCLFile(argument)
		if diagnostics.HasErrors() {
			return nil, diagnostics
		}
		attributes, diagnostics := file.Body.JustAttributes()
		if diagnostics.HasErrors() {
			return nil, diagnostics
		}
		for name, attribute := range attributes {
			if _, found := parsed.variables[name]; !found {
				return nil, fmt.Errorf("%s: no variable is called %s", argument, name)
			}
			given, diagnostics := attribute.Expr.Value(nil)
			if diagnostics.HasErrors() {
				return nil, diagnostics
			}
			values[name] = given
		}
	}
	return values, nil
}

func (parsed *module) validate(context *hcl.EvalContext) error {
	for name, block := range parsed.variables {
		for _, validation := range block.Body.Blocks {
			holds, diagnostics := validation.Body.Attributes["condition"].Expr.Value(context)
			if diagnostics.HasErrors() {
				return diagnostics
			}
			if holds.False() {
				message, _ := validation.Body.Attributes["error_message"].Expr.Value(context)
				return fmt.Errorf("variable %s: %s", name, message.AsString())
			}
		}
	}
	return nil
}

// Locals in whatever order they depend on each other.
func (parsed *module) evaluate(context *hcl.EvalContext) (cty.Value, error) {
	known := map[string]cty.Value{}
	for len(known) < len(parsed.locals) {
		progress := false
		for name, expression := range parsed.locals {
			if _, done := known[name]; done || !ready(expression, known) {
				continue
			}
			context.Variables["local"] = cty.ObjectVal(known)
			result, diagnostics := expression.Value(context)
			if diagnostics.HasErrors() {
				return cty.NilVal, fmt.Errorf("local.%s: %w", name, diagnostics)
			}
			known[name] = result
			progress = true
		}
		if !progress {
			return cty.NilVal, errors.New("locals depend on each other in a circle")
		}
	}
	return cty.ObjectVal(known), nil
}

func ready(expression hcl.Expression, known map[string]cty.Value) bool {
	for _, traversal := range expression.Variables() {
		if traversal.RootName() == "local" {
			if _, found := known[strings.Split(path(traversal), ".")[1]]; !found {
				return false
			}
		}
	}
	return true
}

func value(text string) (cty.Value, error) {
	implied, err := ctyjson.ImpliedType([]byte(text))
	if err != nil {
		return cty.NilVal, fmt.Errorf("%s: %w", text, err)
	}
	return ctyjson.Unmarshal([]byte(text), implied)
}

// Terraform's functions, as far as the module uses them. Two behave differently there than in the library.
func functions() map[string]function.Function {
	coalesce := function.New(&function.Spec{
		VarParam: &function.Parameter{Name: "values", Type: cty.String, AllowNull: true},
		Type:     function.StaticReturnType(cty.String),
		Impl: func(values []cty.Value, _ cty.Type) (cty.Value, error) {
			for _, each := range values {
				if !each.IsNull() && each.AsString() != "" {
					return each, nil
				}
			}
			return cty.NilVal, errors.New("no non-null, non-empty-string arguments")
		},
	})
	lookup := function.New(&function.Spec{
		Params: []function.Parameter{
			{Name: "map", Type: cty.DynamicPseudoType}, {Name: "key", Type: cty.String}, {Name: "default", Type: cty.DynamicPseudoType},
		},
		Type: func([]cty.Value) (cty.Type, error) { return cty.DynamicPseudoType, nil },
		Impl: func(values []cty.Value, _ cty.Type) (cty.Value, error) {
			if entries := values[0].AsValueMap(); entries != nil {
				if found, has := entries[values[1].AsString()]; has {
					return found, nil
				}
			}
			return values[2], nil
		},
	})
	length := function.New(&function.Spec{
		Params: []function.Parameter{{Name: "value", Type: cty.DynamicPseudoType}},
		Type:   function.StaticReturnType(cty.Number),
		Impl: func(values []cty.Value, _ cty.Type) (cty.Value, error) {
			if values[0].Type() == cty.String {
				return stdlib.Strlen(values[0])
			}
			return cty.NumberIntVal(int64(values[0].LengthInt())), nil
		},
	})
	toset := function.New(&function.Spec{
		Params: []function.Parameter{{Name: "value", Type: cty.DynamicPseudoType}},
		Type:   func([]cty.Value) (cty.Type, error) { return cty.DynamicPseudoType, nil },
		Impl:   func(values []cty.Value, _ cty.Type) (cty.Value, error) { return values[0], nil },
	})
	replace := function.New(&function.Spec{
		Params: []function.Parameter{{Name: "text", Type: cty.String}, {Name: "what", Type: cty.String}, {Name: "with", Type: cty.String}},
		Type:   function.StaticReturnType(cty.String),
		Impl: func(values []cty.Value, _ cty.Type) (cty.Value, error) {
			if what := values[1].AsString(); len(what) > 1 && strings.HasPrefix(what, "/") && strings.HasSuffix(what, "/") {
				return stdlib.RegexReplace(values[0], cty.StringVal(what[1:len(what)-1]), values[2])
			}
			return stdlib.Replace(values[0], values[1], values[2])
		},
	})
	return map[string]function.Function{
		"can": tryfunc.CanFunc, "coalesce": coalesce, "concat": stdlib.ConcatFunc, "contains": stdlib.ContainsFunc,
		"flatten": stdlib.FlattenFunc, "jsondecode": stdlib.JSONDecodeFunc, "jsonencode": stdlib.JSONEncodeFunc, "length": length,
		"lookup": lookup, "merge": stdlib.MergeFunc, "replace": replace, "substr": stdlib.SubstrFunc, "toset": toset,
		"trimprefix": stdlib.TrimPrefixFunc, "try": tryfunc.TryFunc,
	}
}
