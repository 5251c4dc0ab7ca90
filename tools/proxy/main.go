// Writes what Go's httpproxy decides for many environments and requests; karpenter-runtime's tests compare with it.
//
//	cd tools/proxy && go run . > ../../crates/karpenter-runtime/testdata/proxy.json
package main

import (
	"encoding/json"
	"net/url"
	"os"

	"golang.org/x/net/http/httpproxy"
)

type answer struct {
	HTTP    string `json:"http"`
	HTTPS   string `json:"https"`
	NoProxy string `json:"noProxy"`
	// The proxies that were chosen, by scheme of the request.
	Chosen map[string]string `json:"chosen"`
	// The requests that go through them, by their place in the list.
	Proxied []int `json:"proxied"`
}

type table struct {
	Requests []string `json:"requests"`
	Answers  []answer `json:"answers"`
}

var requests = []string{
	"https://ec2.us-west-2.amazonaws.com",
	"https://ec2.us-west-2.amazonaws.com:8443/path?query",
	"https://EC2.Us-West-2.amazonaws.com",
	"http://ec2.us-west-2.amazonaws.com",
	"https://amazonaws.com",
	"https://notamazonaws.com",
	"https://kubernetes.default.svc",
	"https://kubernetes.default.svc.cluster.local:443",
	"https://10.100.0.1",
	"https://10.100.0.1:6443",
	"https://[2600:1f14::1]:443",
	"https://[fd00:ec2::254]",
	"http://169.254.169.254",
	"http://169.254.170.23",
	"https://localhost:6443",
	"https://LOCALHOST",
	"https://127.0.0.1:6443",
	"https://127.8.8.8",
	"https://[::1]:6443",
	"https://[::ffff:10.100.0.1]",
	"ftp://ec2.us-west-2.amazonaws.com",
}

var proxies = [][2]string{
	{"", ""},
	{"", "http://proxy:3128"},
	{"http://plain:80", ""},
	{"http://plain:80", "https://secure.example:8443"},
	{"", "proxy.example:3128"},
	{"", "proxy.example"},
	{"", "http://user:pa%40ss@proxy:3128"},
	{"", "socks5://proxy:1080"},
}

var exceptions = []string{
	"",
	"*",
	"amazonaws.com",
	".amazonaws.com",
	"*.amazonaws.com",
	"amazonaws.com:443",
	"ec2.us-west-2.amazonaws.com:8443",
	"AMAZONAWS.COM",
	"10.0.0.0/8",
	"10.100.0.1",
	"10.100.0.1:443",
	"10.100.0.1:6443",
	"10.100.0.1/0",
	"2600:1f14::/32",
	"2600:1f14::1",
	"[2600:1f14::1]",
	"[2600:1f14::1]:443",
	"169.254.169.254,169.254.170.23,fd00:ec2::254",
	".svc,.cluster.local",
	"svc, cluster.local ,,",
	":443",
	"com",
	"amazonaws.com:",
	"a:b:c",
	"10.100.0.1,*",
	"10.100.0.1/33",
}

func main() {
	answers := []answer{}
	for _, proxy := range proxies {
		for _, exception := range exceptions {
			config := httpproxy.Config{HTTPProxy: proxy[0], HTTPSProxy: proxy[1], NoProxy: exception}
			decide := config.ProxyFunc()
			found := answer{proxy[0], proxy[1], exception, map[string]string{}, []int{}}
			for place, request := range requests {
				parsed, err := url.Parse(request)
				if err != nil {
					panic(err)
				}
				chosen, err := decide(parsed)
				if err != nil {
					panic(err)
				}
				if chosen != nil {
					found.Chosen[parsed.Scheme] = chosen.String()
					found.Proxied = append(found.Proxied, place)
				}
			}
			answers = append(answers, found)
		}
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(table{requests, answers}); err != nil {
		panic(err)
	}
}
