// Command fill creates the objects of a large, stable cluster: NodeClaims, their ready Nodes, and running Pods bound to
// them. With "beat" it then writes node statuses as often as that many kubelets would.
//
// Usage: fill SERVER TOKEN_FILE CA_FILE NODES PODS POOL_HASH POOL_HASH_VERSION POOL_UID
//
//	fill beat SERVER TOKEN_FILE CA_FILE NODES SECONDS
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

type object = map[string]any
type list = []any

const (
	workers      = 24
	born         = "2024-01-01T00:00:00Z"
	instanceType = "m-16x-amd64-linux"
)

var (
	server, token string
	client        *http.Client
)

func connect(url, tokenFile, caFile string) {
	server = url
	text, err := os.ReadFile(tokenFile)
	check(err)
	token = strings.TrimSpace(string(text))
	authority, err := os.ReadFile(caFile)
	check(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	client = &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool}, MaxIdleConnsPerHost: workers, ForceAttemptHTTP2: true,
	}}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// send returns the uid of what was written.
func send(method, path, kind string, body object) string {
	text, err := json.Marshal(body)
	check(err)
	for try := 0; ; try++ {
		request, err := http.NewRequest(method, server+path, bytes.NewReader(text))
		check(err)
		request.Header.Set("Authorization", "Bearer "+token)
		request.Header.Set("Content-Type", kind)
		answer, err := client.Do(request)
		if err == nil {
			content, _ := io.ReadAll(answer.Body)
			answer.Body.Close()
			if answer.StatusCode < 300 {
				var written struct{ Metadata struct{ UID string } }
				check(json.Unmarshal(content, &written))
				return written.Metadata.UID
			}
			if answer.StatusCode != 429 && answer.StatusCode < 500 {
				log.Fatalf("%s %s: %s %s", method, path, answer.Status, content)
			}
		}
		if try == 20 {
			log.Fatalf("%s %s: %v", method, path, err)
		}
		time.Sleep(500 * time.Millisecond)
	}
}

func create(path string, body object) string { return send("POST", path, "application/json", body) }
func patch(path string, body object) {
	send("PATCH", path, "application/merge-patch+json", body)
}

// each runs work for 0 to count-1, several at once.
func each(count int, work func(int)) {
	numbers := make(chan int)
	var done sync.WaitGroup
	for range workers {
		done.Add(1)
		go func() {
			defer done.Done()
			for number := range numbers {
				work(number)
			}
		}()
	}
	for number := range count {
		numbers <- number
	}
	close(numbers)
	done.Wait()
}

func condition(kind string) object {
	return object{"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": born, "observedGeneration": 1}
}

func nodeName(number int) string { return fmt.Sprintf("default-%05d", number) }

func labels(number int) object {
	return object{
		"karpenter.sh/nodepool": "default", "karpenter.sh/capacity-type": "on-demand",
		"karpenter.sh/registered": "true", "karpenter.sh/initialized": "true",
		"node.kubernetes.io/instance-type": instanceType, "topology.kubernetes.io/zone": "test-zone-" + string("abc"[number%3]),
		"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "kubernetes.io/hostname": nodeName(number),
		"karpenter.kwok.sh/instance-cpu": "16", "karpenter.kwok.sh/instance-memory": "65536",
		"karpenter.kwok.sh/instance-family": "m", "karpenter.kwok.sh/instance-size": "16x",
		"karpenter.kwok.sh/kwoknodeclass": "default", "kwok.x-k8s.io/node": "fake", "kwok-partition": "a",
		"eks-node-viewer/instance-price": "0.537472",
	}
}

func makeNode(number int, hash, version, poolUID string) {
	name := nodeName(number)
	id := "kwok://" + name
	capacity := object{"cpu": "16", "memory": "64Gi", "pods": "110", "ephemeral-storage": "20Gi"}
	allocatable := object{"cpu": "15900m", "memory": "63Gi", "pods": "110", "ephemeral-storage": "20Gi"}
	annotations := object{"karpenter.sh/nodepool-hash": hash, "karpenter.sh/nodepool-hash-version": version,
		"kwok.x-k8s.io/node": "fake"}
	var types list
	for _, family := range []string{"c", "s", "m"} {
		for _, size := range []int{16, 32, 48, 64, 96, 128, 192, 256} {
			types = append(types, fmt.Sprintf("%s-%dx-amd64-linux", family, size))
		}
	}
	claim := create("/apis/karpenter.sh/v1/nodeclaims", object{
		"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
		"metadata": object{"name": name, "labels": labels(number), "annotations": annotations,
			"finalizers": list{"karpenter.sh/termination"},
			"ownerReferences": list{object{"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "name": "default",
				"uid": poolUID, "blockOwnerDeletion": true}}},
		"spec": object{"expireAfter": "Never",
			"nodeClassRef": object{"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
			"requirements": list{
				object{"key": "karpenter.sh/nodepool", "operator": "In", "values": list{"default"}},
				object{"key": "karpenter.sh/capacity-type", "operator": "In", "values": list{"on-demand"}},
				object{"key": "kubernetes.io/os", "operator": "In", "values": list{"linux"}},
				object{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": types}},
			"resources": object{"requests": object{"cpu": "10", "memory": "20Gi", "pods": "10"}}},
	})
	conditions := list{}
	for _, kind := range []string{"Launched", "Registered", "Initialized", "Ready", "ConsistentStateFound"} {
		conditions = append(conditions, condition(kind))
	}
	patch("/apis/karpenter.sh/v1/nodeclaims/"+name+"/status", object{"status": object{
		"providerID": id, "nodeName": name, "capacity": capacity, "allocatable": allocatable, "conditions": conditions,
		"lastPodEventTime": born}})
	create("/api/v1/nodes", object{
		"metadata": object{"name": name, "labels": labels(number), "annotations": annotations,
			"finalizers": list{"karpenter.sh/termination"},
			"ownerReferences": list{object{"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": name, "uid": claim,
				"blockOwnerDeletion": true}}},
		"spec":   object{"providerID": id},
		"status": nodeStatus(time.Now(), capacity, allocatable),
	})
	// Admission taints a new node as not ready, and no controller runs that removes the taint.
	patch("/api/v1/nodes/"+name, object{"spec": object{"taints": nil}})
}

func nodeStatus(now time.Time, capacity, allocatable object) object {
	var conditions list
	beat := now.UTC().Format(time.RFC3339)
	for _, kind := range []string{"MemoryPressure", "DiskPressure", "PIDPressure", "Ready"} {
		status := "False"
		if kind == "Ready" {
			status = "True"
		}
		conditions = append(conditions, object{"type": kind, "status": status, "reason": "Kubelet" + kind,
			"message": "kubelet says so", "lastHeartbeatTime": beat, "lastTransitionTime": born})
	}
	var images list
	for image := range 20 {
		images = append(images, object{"names": list{fmt.Sprintf("registry.example.com/team/image-%d:v1.2.3", image)}, "sizeBytes": 100000000})
	}
	return object{"capacity": capacity, "allocatable": allocatable, "conditions": conditions, "images": images,
		"addresses": list{object{"type": "InternalIP", "address": "10.0.0.1"}},
		"nodeInfo": object{"kubeletVersion": "v1.35.4", "osImage": "linux", "kernelVersion": "6", "containerRuntimeVersion": "c",
			"architecture": "amd64", "operatingSystem": "linux", "bootID": "b", "machineID": "m", "systemUUID": "s", "kubeProxyVersion": ""}}
}

// makePod makes a pod as large as pods are: variables, mounts, probes, a token volume, and a status with everything in it.
func makePod(number, nodes int) {
	name := fmt.Sprintf("web-%d-%05d", number%200, number)
	app := fmt.Sprintf("web-%d", number%200)
	var env list
	for variable := range 12 {
		env = append(env, object{"name": fmt.Sprintf("SETTING_%d", variable), "value": "the value of a setting"})
	}
	probe := object{"httpGet": object{"path": "/healthz", "port": 8080}, "periodSeconds": 10}
	owner := object{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app + "-5d4f8", "uid": "uid-" + app,
		"controller": true, "blockOwnerDeletion": true}
	create("/api/v1/namespaces/default/pods", object{
		"metadata": object{"name": name, "labels": object{"app": app, "pod-template-hash": "5d4f8", "team": "platform"},
			"annotations":     object{"example.com/revision": "42", "prometheus.io/scrape": "true", "prometheus.io/port": "8080"},
			"ownerReferences": list{owner}},
		"spec": object{
			"nodeName": nodeName(number % nodes), "serviceAccountName": "default", "automountServiceAccountToken": false,
			"tolerations": list{
				object{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
				object{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}},
			"volumes": list{object{"name": "settings", "configMap": object{"name": "settings"}},
				object{"name": "scratch", "emptyDir": object{}}},
			"containers": list{object{"name": "main", "image": "registry.example.com/team/web:v1.2.3",
				"command": list{"/bin/web"}, "args": list{"--listen=:8080", "--verbose"}, "env": env,
				"ports":          list{object{"containerPort": 8080}},
				"resources":      object{"requests": object{"cpu": "1", "memory": "2Gi"}, "limits": object{"memory": "2Gi"}},
				"readinessProbe": probe, "livenessProbe": probe,
				"volumeMounts": list{object{"name": "settings", "mountPath": "/etc/web"}, object{"name": "scratch", "mountPath": "/tmp"}}}},
		}})
	var conditions list
	for _, kind := range []string{"PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready"} {
		conditions = append(conditions, object{"type": kind, "status": "True", "lastTransitionTime": born})
	}
	patch("/api/v1/namespaces/default/pods/"+name+"/status", object{"status": object{
		"phase": "Running", "startTime": born, "podIP": "10.1.2.3", "podIPs": list{object{"ip": "10.1.2.3"}}, "hostIP": "10.0.0.1",
		"qosClass": "Burstable", "conditions": conditions,
		"containerStatuses": list{object{"name": "main", "ready": true, "started": true, "restartCount": 0,
			"image": "registry.example.com/team/web:v1.2.3", "imageID": "registry.example.com/team/web@sha256:" + strings.Repeat("0", 64),
			"containerID":        "containerd://" + strings.Repeat("1", 64),
			"allocatedResources": object{"cpu": "1", "memory": "2Gi"},
			"resources":          object{"requests": object{"cpu": "1", "memory": "2Gi"}, "limits": object{"memory": "2Gi"}},
			"state":              object{"running": object{"startedAt": born}}}}}})
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	check(err)
	return value
}

func main() {
	log.SetFlags(0)
	if os.Args[1] == "beat" {
		connect(os.Args[2], os.Args[3], os.Args[4])
		nodes, seconds := number(os.Args[5]), number(os.Args[6])
		// A kubelet writes its node's status every five minutes if nothing changed.
		ticker := time.NewTicker(5 * time.Minute / time.Duration(nodes))
		end := time.After(time.Duration(seconds) * time.Second)
		for next := 0; ; next++ {
			select {
			case <-end:
				return
			case <-ticker.C:
				status := nodeStatus(time.Now(), object{}, object{})
				patch("/api/v1/nodes/"+nodeName(next%nodes)+"/status", object{"status": object{"conditions": status["conditions"]}})
			}
		}
	}
	connect(os.Args[1], os.Args[2], os.Args[3])
	nodes, pods := number(os.Args[4]), number(os.Args[5])
	each(nodes, func(node int) { makeNode(node, os.Args[6], os.Args[7], os.Args[8]) })
	each(pods, func(pod int) { makePod(pod, nodes) })
}
