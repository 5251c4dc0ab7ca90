// Prints how Go encodes the fields of the built-in Kubernetes types: which fields are always written, which are
// dropped when empty, which are quantities or times. The result is
// crates/karpenter-apiserver/src/admission/go-types.txt; admission/canonical.rs says how to read it.
//
//	go mod init types && go get k8s.io/client-go@v0.35.4 && go run . > go-types.txt
package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
)

var special = map[reflect.Type]string{
	reflect.TypeOf(resource.Quantity{}):    "q",
	reflect.TypeOf(metav1.Time{}):          "t",
	reflect.TypeOf(metav1.MicroTime{}):     "u",
	reflect.TypeOf(metav1.Duration{}):      "r",
	reflect.TypeOf(intstr.IntOrString{}):   "i",
	reflect.TypeOf(runtime.RawExtension{}): "r",
	reflect.TypeOf(metav1.FieldsV1{}):      "r",
}

var numbers = map[reflect.Type]int{}
var lines []string

func expression(t reflect.Type) string {
	if s, ok := special[t]; ok {
		return s
	}
	switch t.Kind() {
	case reflect.Pointer:
		return "*" + expression(t.Elem())
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "y"
		}
		return "[" + expression(t.Elem())
	case reflect.Map:
		return "{" + expression(t.Elem())
	case reflect.String:
		return "s"
	case reflect.Bool:
		return "b"
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Float64, reflect.Uint8, reflect.Int16:
		return "n"
	case reflect.Struct:
		if _, ok := reflect.PointerTo(t).MethodByName("MarshalJSON"); ok {
			return "r"
		}
		return fmt.Sprintf("#%d", structNumber(t))
	}
	return "r"
}

func structNumber(t reflect.Type) int {
	if n, ok := numbers[t]; ok {
		return n
	}
	n := len(lines)
	numbers[t] = n
	lines = append(lines, "")
	fields := []string{}
	collect(t, &fields)
	sort.Strings(fields)
	lines[n] = strings.Join(fields, " ")
	return n
}

func collect(t reflect.Type, fields *[]string) {
	for i := 0; i < t.NumField(); i++ {
		f := t.Field(i)
		parts := strings.Split(f.Tag.Get("json"), ",")
		name := parts[0]
		if name == "-" {
			continue
		}
		if f.Type == reflect.TypeOf(metav1.TypeMeta{}) {
			*fields = append(*fields, "apiVersion=s?", "kind=s?")
			continue
		}
		if f.Anonymous && name == "" {
			collect(f.Type, fields)
			continue
		}
		flags := ""
		for _, p := range parts[1:] {
			if p == "omitempty" {
				flags += "?"
			}
			if p == "omitzero" {
				flags += "~"
			}
		}
		*fields = append(*fields, name+"="+expression(f.Type)+flags)
	}
}

func main() {
	_ = json.Marshal
	roots := []string{}
	for gvk, t := range scheme.Scheme.AllKnownTypes() {
		if gvk.Version != "v1" && gvk.Version != "v2" {
			continue
		}
		if strings.HasSuffix(gvk.Kind, "Options") || strings.HasSuffix(gvk.Kind, "List") || gvk.Kind == "WatchEvent" {
			continue
		}
		if !strings.HasPrefix(t.PkgPath(), "k8s.io/api/") {
			continue
		}
		roots = append(roots, gvk.Group+"/"+gvk.Version+"/"+gvk.Kind)
	}
	sort.Strings(roots)
	heads := []string{}
	for _, r := range roots {
		p := strings.Split(r, "/")
		for gvk, t := range scheme.Scheme.AllKnownTypes() {
			if gvk.Group == p[0] && gvk.Version == p[1] && gvk.Kind == p[2] {
				heads = append(heads, fmt.Sprintf("@%s %d", r, structNumber(t)))
			}
		}
	}
	for _, h := range heads {
		fmt.Println(h)
	}
	for _, l := range lines {
		fmt.Println(l)
	}
}
