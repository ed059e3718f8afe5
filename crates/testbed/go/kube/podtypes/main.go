// Podtypes writes the table crates/model/src/manifest/uid/types.txt: the types that upstream's kubelet holds a static pod
// in when it makes the pod's UID, and the names that their fields have in JSON. With names of files it writes the UIDs
// that upstream gives to their pods instead, one line each: UID, file.
//
//	cd crates/testbed/go/kube && go run ./podtypes > ../../../model/src/manifest/uid/types.txt
//	cd crates/testbed/go/kube && go run ./podtypes FILE...
//
// NODE names the node, Node1 otherwise; SOURCE the file or, if there is a scheme in it, the URL that the pods are said to
// be from, instead of /etc/kubernetes/manifests/web.yaml. With DUMP set, what is hashed is written as well.
package main

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"os"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	"k8s.io/utils/dump"
)

// Written in ways of their own, and known to the reader of the table.
var special = map[string]bool{
	"resource.Quantity":  true,
	"v1.Time":            true,
	"v1.FieldsV1":        true,
	"intstr.IntOrString": true,
}

// Fields that the API has elsewhere, with their names there.
var moved = map[string]string{
	"HostNetwork":           "hostNetwork",
	"HostPID":               "hostPID",
	"HostIPC":               "hostIPC",
	"ShareProcessNamespace": "shareProcessNamespace",
	"HostUsers":             "hostUsers",
}

func main() {
	if len(os.Args) == 1 {
		table{seen: map[string]reflect.Type{}}.add(reflect.TypeFor[core.Pod](), reflect.TypeFor[v1.Pod]())
		return
	}
	node := cmp.Or(os.Getenv("NODE"), "Node1")
	source := cmp.Or(os.Getenv("SOURCE"), "/etc/kubernetes/manifests/web.yaml")
	place := fmt.Sprintf("host:%sfile:%s", node, source)
	if strings.Contains(source, "://") {
		place = "url:" + source
	}
	for _, file := range os.Args[1:] {
		if err := identify(file, place); err != nil {
			fmt.Fprintln(os.Stderr, file, err)
		}
	}
}

func identify(file, place string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	json, err := yaml.ToJSON(data)
	if err != nil {
		return err
	}
	object, err := runtime.Decode(legacyscheme.Codecs.UniversalDecoder(), json)
	if err != nil {
		return err
	}
	pod, ok := object.(*core.Pod)
	if !ok {
		return fmt.Errorf("no pod but %T", object)
	}
	text := dump.ForHash(pod)
	hasher := fnv.New128a()
	fmt.Fprint(hasher, text, place)
	fmt.Printf("%x %s\n", hasher.Sum(nil), file)
	if os.Getenv("DUMP") != "" {
		fmt.Println(text)
	}
	return nil
}

type table struct {
	seen map[string]reflect.Type
}

// A type, and what the API has for it.
func (t table) add(inner, api reflect.Type) {
	name := inner.String()
	if known, ok := t.seen[name]; ok {
		if known != inner {
			panic("two types are called " + name)
		}
		return
	}
	switch inner.Kind() {
	case reflect.Pointer, reflect.Slice:
		if inner.Elem().Kind() == reflect.Pointer {
			panic("not foreseen: " + name)
		}
		t.behind(inner, api)
		t.add(inner.Elem(), api.Elem())
	case reflect.Map:
		t.behind(inner, api)
		t.add(inner.Key(), api.Key())
		t.add(inner.Elem(), api.Elem())
	case reflect.Struct:
		t.seen[name] = inner
		if !special[name] {
			t.fields(inner, api)
		}
	case reflect.String, reflect.Bool, reflect.Int32, reflect.Int64:
		t.behind(inner, api)
	default:
		panic("not foreseen: " + name)
	}
}

// A type with a name of its own says what it is.
func (t table) behind(inner, _ reflect.Type) {
	name := inner.String()
	if inner.PkgPath() == "" {
		return
	}
	t.seen[name] = inner
	plain := inner.Kind().String()
	switch inner.Kind() {
	case reflect.Map:
		plain = fmt.Sprintf("map[%s]%s", inner.Key(), inner.Elem())
	case reflect.Slice:
		plain = "[]" + inner.Elem().String()
	}
	fmt.Printf("name %s %s\n", name, plain)
}

func (t table) fields(inner, api reflect.Type) {
	fmt.Printf("struct %s\n", inner)
	types := [][2]reflect.Type{}
	for i := range inner.NumField() {
		field := inner.Field(i)
		outer, ok := api.FieldByName(field.Name)
		key := moved[field.Name]
		switch {
		case ok:
			key = strings.Split(outer.Tag.Get("json"), ",")[0]
			types = append(types, [2]reflect.Type{field.Type, outer.Type})
		case key != "":
			types = append(types, [2]reflect.Type{field.Type, field.Type})
		default:
			panic(fmt.Sprintf("the API has no %s in %s", field.Name, api))
		}
		fmt.Printf(" %s %s %s\n", field.Name, cmp.Or(key, "-"), field.Type)
	}
	for _, pair := range types {
		t.add(pair[0], pair[1])
	}
}
