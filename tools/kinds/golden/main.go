// Golden answers of Kubernetes' own Go code, for the tests of karpenter-apiserver.
//
// Reads cases.json (what to ask) from the first argument, adds generated cases,
// runs each through the library that a real API server runs, and writes the
// answers to the second argument:
//
//	round_trip  decode JSON into the Go type and encode it again, and the same through protobuf
//	strict      strict decoding errors, or why decoding failed
//	strategic   strategic merge patch
//	apply       sequences of creates, updates and server-side applies with their managedFields
//
// The third argument is the directory api/openapi-spec/v3 of the module
// k8s.io/kubernetes. How to run it is in ../README.md.
package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	kjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

type object = map[string]any

type strategicCase struct {
	Kind    string // group/version/kind
	Current object
	Patch   object
	Answer  object `json:",omitempty"`
	Error   string `json:",omitempty"`
}

type operation struct {
	Verb        string // "update" (also create) or "apply"
	Manager     string
	Subresource string `json:",omitempty"`
	Force       bool   `json:",omitempty"`
	Object      object
	Answer      object   `json:",omitempty"`
	Error       string   `json:",omitempty"`
	Causes      []string `json:",omitempty"`
}

type applyCase struct {
	Name       string
	Kind       string
	Operations []operation
}

type roundTripCase struct {
	Object   object
	Answer   object `json:",omitempty"`
	Protobuf string `json:",omitempty"`
	// Only if it differs from Answer: protobuf does not tell an empty list from none.
	FromProtobuf object `json:",omitempty"`
}

type strictCase struct {
	Kind  string
	Body  string
	Error string
	// Whether Error is about unknown and duplicate fields only.
	Strict bool
}

type cases struct {
	RoundTrip []roundTripCase `json:"round_trip"`
	Strict    []strictCase    `json:"strict"`
	Strategic []strategicCase `json:"strategic"`
	Apply     []applyCase     `json:"apply"`
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func parseKind(text string) schema.GroupVersionKind {
	parts := strings.Split(text, "/")
	return schema.GroupVersionKind{Group: parts[0], Version: parts[1], Kind: parts[2]}
}

func toTyped(kind schema.GroupVersionKind, from object) runtime.Object {
	data, err := json.Marshal(from)
	check(err)
	decoder := kjson.NewSerializerWithOptions(kjson.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, kjson.SerializerOptions{})
	typed, _, err := decoder.Decode(data, &kind, nil)
	check(err)
	return typed
}

func toObject(typed runtime.Object) object {
	data, err := json.Marshal(typed)
	check(err)
	var out object
	check(json.Unmarshal(data, &out))
	return out
}

func runRoundTrip(test *roundTripCase) {
	gv, err := schema.ParseGroupVersion(test.Object["apiVersion"].(string))
	check(err)
	kind := gv.WithKind(test.Object["kind"].(string))
	typed := toTyped(kind, test.Object)
	test.Answer = toObject(typed)
	var buffer strings.Builder
	check(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(typed, &buffer))
	decoded, _, err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Decode([]byte(buffer.String()), nil, nil)
	check(err)
	decoded.GetObjectKind().SetGroupVersionKind(kind)
	if again := toObject(decoded); !reflect.DeepEqual(again, test.Answer) {
		test.FromProtobuf = again
	}
	test.Protobuf = base64.StdEncoding.EncodeToString([]byte(buffer.String()))
}

func runStrict(test *strictCase) {
	kind := parseKind(test.Kind)
	codecs := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict)
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), "application/json")
	_, _, err := info.StrictSerializer.Decode([]byte(test.Body), &kind, nil)
	if err != nil {
		test.Error = err.Error()
		test.Strict = runtime.IsStrictDecodingError(err)
	}
}

func runStrategic(test *strategicCase) {
	reference, err := scheme.Scheme.New(parseKind(test.Kind))
	check(err)
	current := runtime.DeepCopyJSON(test.Current)
	patch := runtime.DeepCopyJSON(test.Patch)
	answer, err := strategicpatch.StrategicMergeMapPatch(current, patch, reference)
	if err != nil {
		test.Error = err.Error()
		return
	}
	test.Answer = answer
}

// What the kind's strategy in kubernetes/pkg/registry returns from GetResetFields.
func resetFields(kind, subresource string) *fieldpath.Set {
	switch {
	case subresource == "":
		return fieldpath.NewSet(fieldpath.MakePathOrDie("status"))
	case subresource == "status" && kind == "Pod":
		return fieldpath.NewSet(fieldpath.MakePathOrDie("spec"),
			fieldpath.MakePathOrDie("metadata", "deletionTimestamp"), fieldpath.MakePathOrDie("metadata", "ownerReferences"))
	case subresource == "status" && kind == "Deployment":
		return fieldpath.NewSet(fieldpath.MakePathOrDie("spec"), fieldpath.MakePathOrDie("metadata", "labels"))
	case subresource == "status":
		return fieldpath.NewSet(fieldpath.MakePathOrDie("spec"))
	}
	return fieldpath.NewSet()
}

func runApply(converter managedfields.TypeConverter, test *applyCase) {
	kind := parseKind(test.Kind)
	version := fieldpath.APIVersion(kind.GroupVersion().String())
	live, err := scheme.Scheme.New(kind)
	check(err)
	for index := range test.Operations {
		operation := &test.Operations[index]
		reset := resetFields(kind.Kind, operation.Subresource)
		manager, err := managedfields.NewDefaultFieldManager(converter, scheme.Scheme, scheme.Scheme, scheme.Scheme, kind,
			kind.GroupVersion(), operation.Subresource, fieldpath.NewExcludeFilterSetMap(map[fieldpath.APIVersion]*fieldpath.Set{version: reset}))
		check(err)
		var next runtime.Object
		if operation.Verb == "apply" {
			next, err = manager.Apply(live.DeepCopyObject(), &unstructured.Unstructured{Object: runtime.DeepCopyJSON(operation.Object)}, operation.Manager, operation.Force)
		} else {
			next = manager.UpdateNoErrors(live.DeepCopyObject(), toTyped(kind, operation.Object), operation.Manager)
		}
		if err != nil {
			operation.Error = err.Error()
			if status, ok := err.(apierrors.APIStatus); ok && status.Status().Details != nil {
				for _, cause := range status.Status().Details.Causes {
					operation.Causes = append(operation.Causes, fmt.Sprintf("%s|%s|%s", cause.Type, cause.Message, cause.Field))
				}
				// The library goes through its managers in random order.
				sort.Strings(operation.Causes)
			}
			continue
		}
		accessor, err := meta.Accessor(next)
		check(err)
		// A server would have given it one; an object without a uid counts as new.
		accessor.SetUID("u")
		live = next
		operation.Answer = toObject(next)
		accessor2, _ := meta.Accessor(next)
		entries := accessor2.GetManagedFields()
		stripped := []metav1.ManagedFieldsEntry{}
		for _, entry := range entries {
			entry.Time = nil
			stripped = append(stripped, entry)
		}
		copied := next.DeepCopyObject()
		accessor3, _ := meta.Accessor(copied)
		accessor3.SetManagedFields(stripped)
		operation.Answer = toObject(copied)
	}
}

// Random objects from a small vocabulary, so that they meet each other's fields often.
type generator struct{ *rand.Rand }

func (g generator) maybe(percent int) bool { return g.Intn(100) < percent }

func (g generator) pick(options ...string) string { return options[g.Intn(len(options))] }

func (g generator) subset(options ...string) []string {
	out := []string{}
	for _, index := range g.Perm(len(options)) {
		if g.maybe(45) {
			out = append(out, options[index])
		}
	}
	return out
}

func (g generator) strings(options ...string) object {
	out := object{}
	for _, key := range g.subset(options...) {
		out[key] = g.pick("1", "2")
	}
	return out
}

func (g generator) container(name string) object {
	out := object{"name": name}
	if g.maybe(60) {
		out["image"] = g.pick("a", "b")
	}
	if g.maybe(30) {
		out["args"] = []any{g.pick("x", "y")}
	}
	if g.maybe(40) {
		env := []any{}
		for _, name := range g.subset("E", "F", "G") {
			env = append(env, object{"name": name, "value": g.pick("1", "2")})
		}
		out["env"] = env
	}
	if g.maybe(40) {
		ports := []any{}
		for _, port := range g.subset("80", "81") {
			number := json.Number(port)
			value, _ := number.Int64()
			entry := object{"containerPort": value}
			if g.maybe(30) {
				entry["name"] = g.pick("p", "q")
			}
			if g.maybe(30) {
				entry["protocol"] = g.pick("TCP", "UDP")
			}
			ports = append(ports, entry)
		}
		out["ports"] = ports
	}
	if g.maybe(30) {
		limits := object{}
		for _, name := range g.subset("cpu", "memory") {
			limits[name] = g.pick("1", "2")
		}
		out["resources"] = object{"limits": limits}
	}
	return out
}

func (g generator) pod(withStatus bool) object {
	metadata := object{"name": "x", "namespace": "n"}
	if g.maybe(50) {
		metadata["labels"] = g.strings("a", "b", "c")
	}
	if g.maybe(30) {
		metadata["annotations"] = g.strings("a", "b")
	}
	if g.maybe(40) {
		finalizers := []any{}
		for _, name := range g.subset("f/1", "f/2", "f/3") {
			finalizers = append(finalizers, name)
		}
		metadata["finalizers"] = finalizers
	}
	spec := object{}
	containers := []any{}
	for _, name := range g.subset("one", "two", "three") {
		containers = append(containers, g.container(name))
	}
	spec["containers"] = containers
	if g.maybe(40) {
		spec["nodeSelector"] = g.strings("a", "b")
	}
	if g.maybe(40) {
		spec["tolerations"] = []any{object{"key": g.pick("a", "b"), "operator": "Exists"}}
	}
	if g.maybe(40) {
		volumes := []any{}
		for _, name := range g.subset("v", "w") {
			volume := object{"name": name}
			if g.maybe(50) {
				volume["emptyDir"] = object{}
			} else {
				volume["hostPath"] = object{"path": g.pick("/a", "/b")}
			}
			volumes = append(volumes, volume)
		}
		spec["volumes"] = volumes
	}
	if g.maybe(30) {
		spec["securityContext"] = object{"runAsNonRoot": g.maybe(50), "supplementalGroups": []any{int64(g.Intn(3))}}
	}
	if g.maybe(20) {
		spec["terminationGracePeriodSeconds"] = int64(g.Intn(3))
	}
	out := object{"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
	if withStatus {
		conditions := []any{}
		for _, name := range g.subset("Ready", "PodScheduled") {
			conditions = append(conditions, object{"type": name, "status": g.pick("True", "False")})
		}
		out["status"] = object{"phase": g.pick("Pending", "Running"), "conditions": conditions}
	}
	return out
}

// A strategic patch towards another random pod, made by the library that kubectl uses, or a pod taken as a patch.
func (g generator) strategic() strategicCase {
	current, target := g.pod(true), g.pod(true)
	test := strategicCase{Kind: "/v1/Pod", Current: current}
	if g.maybe(50) {
		reference, err := scheme.Scheme.New(parseKind(test.Kind))
		check(err)
		before, _ := json.Marshal(current)
		after, _ := json.Marshal(target)
		patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, reference)
		check(err)
		check(json.Unmarshal(patch, &test.Patch))
	} else {
		test.Patch = target
	}
	return test
}

func (g generator) apply(index int) applyCase {
	test := applyCase{Name: fmt.Sprintf("generated %d", index), Kind: "/v1/Pod"}
	test.Operations = append(test.Operations, operation{Verb: g.pick("apply", "update"), Manager: g.pick("m1", "m2"), Object: g.pod(false)})
	for range 4 {
		next := operation{Verb: g.pick("apply", "apply", "update"), Manager: g.pick("m1", "m2", "m3"), Force: g.maybe(60)}
		if g.maybe(20) {
			next.Subresource = "status"
		}
		next.Object = g.pod(next.Subresource == "status")
		if next.Verb == "update" {
			next.Force = false
		}
		test.Operations = append(test.Operations, next)
	}
	return test
}

func normalise(value any) any {
	data, err := json.Marshal(value)
	check(err)
	decoder := json.NewDecoder(strings.NewReader(string(data)))
	var out any
	check(decoder.Decode(&out))
	return out
}

func main() {
	check(apiextensions.AddToScheme(scheme.Scheme))
	check(apiregistration.AddToScheme(scheme.Scheme))
	text, err := os.ReadFile(os.Args[1])
	check(err)
	var all cases
	check(json.Unmarshal(text, &all))
	g := generator{rand.New(rand.NewSource(1))}
	for range 40 {
		all.Strategic = append(all.Strategic, g.strategic())
	}
	for index := range 25 {
		all.Apply = append(all.Apply, g.apply(index))
	}
	useIntegers(&all)
	models := map[string]*spec.Schema{}
	files, err := filepath.Glob(filepath.Join(os.Args[3], "*.json"))
	check(err)
	for _, file := range files {
		var document struct {
			Components struct{ Schemas map[string]*spec.Schema }
		}
		data, err := os.ReadFile(file)
		check(err)
		check(json.Unmarshal(data, &document))
		for name, model := range document.Components.Schemas {
			models[name] = model
		}
	}
	converter, err := managedfields.NewTypeConverter(models, false)
	check(err)
	for index := range all.RoundTrip {
		runRoundTrip(&all.RoundTrip[index])
	}
	for index := range all.Strict {
		runStrict(&all.Strict[index])
	}
	for index := range all.Strategic {
		runStrategic(&all.Strategic[index])
	}
	for index := range all.Apply {
		runApply(converter, &all.Apply[index])
	}
	out, err := json.Marshal(normalise(all))
	check(err)
	// One case a line keeps diffs readable.
	out = []byte(strings.ReplaceAll(string(out), "},{\"Answer\"", "},\n{\"Answer\""))
	check(os.WriteFile(os.Args[2], append(out, '\n'), 0o644))
}

// Numbers must be int64 where a server would have them so.
func useIntegers(all *cases) {
	fix := func(o *object) {
		raw, err := json.Marshal(object{"apiVersion": "v1", "kind": "Wrapper", "body": *o})
		check(err)
		var wrapper unstructured.Unstructured
		check(wrapper.UnmarshalJSON(raw))
		*o = wrapper.Object["body"].(object)
	}
	for i := range all.Strategic {
		fix(&all.Strategic[i].Current)
		fix(&all.Strategic[i].Patch)
	}
	for i := range all.Apply {
		for j := range all.Apply[i].Operations {
			fix(&all.Apply[i].Operations[j].Object)
		}
	}
}
