package helm

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	certv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

const (
	root  = "../.."
	chart = root + "/deploy/helm/xdsrelay"
)

var profiles = []string{"small", "ha", "mtls", "kgateway"}

// helm runs helm, and returns its output and its errors.
func helm(args ...string) (out, errors string, err error) {
	cmd := exec.Command("go", append([]string{"tool", "helm"}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}

// render renders the chart as the release relay in the namespace mesh.
func render(t *testing.T, args ...string) string {
	t.Helper()
	out, errors, err := helm(append([]string{"template", "relay", chart, "--namespace", "mesh"}, args...)...)
	if err != nil {
		t.Fatalf("helm template: %v\n%s", err, errors)
	}
	return out
}

func profile(name string) string { return root + "/deploy/helm/profiles/" + name + ".yaml" }

// objects are the objects of a render, by kind and name.
type objects map[string][]byte

func split(t *testing.T, rendered string) objects {
	t.Helper()
	all := make(objects)
	for doc := range strings.SplitSeq(rendered, "\n---\n") {
		var head struct {
			Kind     string
			Metadata struct{ Name string }
		}
		if err := yaml.Unmarshal([]byte(doc), &head); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		if head.Kind == "" {
			continue // a comment
		}
		key := head.Kind + "/" + head.Metadata.Name
		if all[key] != nil {
			t.Errorf("%s is rendered twice", key)
		}
		all[key] = []byte(doc)
	}
	return all
}

// get decodes an object. Unknown and repeated fields are errors.
func get[T any](t *testing.T, all objects, key string) *T {
	t.Helper()
	object := new(T)
	if err := yaml.UnmarshalStrict(all[key], object); err != nil {
		t.Errorf("%s: %v", key, err)
	}
	return object
}

// Each profile passes helm lint, and is rendered as recorded, as objects of the Kubernetes API.
// WRITE_GOLDEN=1 records.
func TestProfiles(t *testing.T) {
	for _, name := range profiles {
		t.Run(name, func(t *testing.T) {
			if out, errors, err := helm("lint", "--strict", chart, "--values", profile(name)); err != nil {
				t.Fatalf("helm lint: %v\n%s%s", err, out, errors)
			}
			rendered := render(t, "--values", profile(name))
			decode(t, split(t, rendered))
			golden := root + "/deploy/helm/golden/" + name + ".yaml"
			text := withoutRules(rendered)
			if os.Getenv("WRITE_GOLDEN") != "" {
				if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			recorded, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if text != string(recorded) {
				t.Errorf("%s differs from the render; look at the difference that `make chart WRITE_GOLDEN=1` makes", golden)
			}
		})
	}
}

// decode checks each object.
func decode(t *testing.T, all objects) {
	t.Helper()
	for key := range all {
		switch kind, _, _ := strings.Cut(key, "/"); kind {
		case "StatefulSet":
			get[appsv1.StatefulSet](t, all, key)
		case "Service":
			get[corev1.Service](t, all, key)
		case "ConfigMap":
			get[corev1.ConfigMap](t, all, key)
		case "ServiceAccount":
			get[corev1.ServiceAccount](t, all, key)
		case "PodDisruptionBudget":
			get[policyv1.PodDisruptionBudget](t, all, key)
		case "NetworkPolicy":
			get[networkingv1.NetworkPolicy](t, all, key)
		case "HorizontalPodAutoscaler":
			get[autoscalingv2.HorizontalPodAutoscaler](t, all, key)
		case "Certificate":
			get[certv1.Certificate](t, all, key)
		case "ServiceMonitor":
			get[monitoringv1.ServiceMonitor](t, all, key)
		case "PrometheusRule":
			get[monitoringv1.PrometheusRule](t, all, key)
		default:
			t.Errorf("no type for %s", key)
		}
	}
}

// withoutRules leaves out the alerts, which TestAlerts compares with their file.
func withoutRules(rendered string) string {
	docs := strings.Split(rendered, "\n---\n")
	return strings.Join(slices.DeleteFunc(docs, func(d string) bool { return strings.Contains(d, "\nkind: PrometheusRule\n") }), "\n---\n")
}

// The PrometheusRule has the alerts of deploy/monitoring, with the address of the runbook.
func TestAlerts(t *testing.T) {
	rule := get[struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Metadata   map[string]any `json:"metadata"`
		Spec       map[string]any `json:"spec"`
	}](t, split(t, render(t, "--values", profile("ha"))), "PrometheusRule/relay")
	text, err := os.ReadFile(root + "/deploy/monitoring/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := make(map[string]any)
	replaced := strings.ReplaceAll(string(text), "runbook_url: docs/operations.md#", "runbook_url: https://example.com/docs/operations.md#")
	if err := yaml.Unmarshal([]byte(replaced), &want); err != nil {
		t.Fatal(err)
	}
	a, _ := yaml.Marshal(rule.Spec)
	b, _ := yaml.Marshal(want)
	if replaced == string(text) || !bytes.Equal(a, b) {
		t.Error("the alerts differ from deploy/monitoring/alerts.yaml")
	}
}

// Values that cannot work are refused, with the value's name.
func TestRefusedValues(t *testing.T) {
	for _, c := range []struct{ set, want string }{
		{"admin.tokenSecret=", "admin.tokenSecret is required"},
		{"cluster.enabled=true", "cluster.tls needs secretName or issuerRef"},
		{"cluster.enabled=true,cluster.tls.secretName=a", "cluster.gossipSecret is required"},
		{"config.downstream.drain=1m", "/config/downstream/drain"},
		{"config.cluster.name=edge", "/config/cluster"},
		{"config.metrics.prefix=relay", "/config/metrics/prefix"},
		{"resources.limits.memory=1G", "/resources/limits/memory"},
		{"replicaCount=3", "replicaCount"},
	} {
		_, errors, err := helm("template", "relay", chart, "--values", profile("small"), "--set", c.set)
		if err == nil || !strings.Contains(errors, c.want) {
			t.Errorf("--set %s: got %v, %s; want %q", c.set, err, errors, c.want)
		}
	}
}

// OpenShift assigns the user and the group of a pod.
func TestUserOfOpenShift(t *testing.T) {
	all := split(t, render(t, "--values", profile("small"), "--set", "podSecurityContext.runAsUser=null,podSecurityContext.runAsGroup=null,podSecurityContext.fsGroup=null"))
	of := get[appsv1.StatefulSet](t, all, "StatefulSet/relay").Spec.Template.Spec.SecurityContext
	if of.RunAsUser != nil || of.RunAsGroup != nil || of.FSGroup != nil || of.RunAsNonRoot == nil {
		t.Errorf("the security context is %v", of)
	}
}

// An autoscaler and the chart do not both set the number of replicas.
func TestAutoscaling(t *testing.T) {
	all := split(t, render(t, "--values", profile("ha"), "--set", "autoscaling.enabled=true"))
	decode(t, all)
	if all["HorizontalPodAutoscaler/relay"] == nil || get[appsv1.StatefulSet](t, all, "StatefulSet/relay").Spec.Replicas != nil {
		t.Error("the number of replicas is not left to the autoscaler")
	}
}

// build builds the relay.
func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "relay")
	cmd := exec.Command("go", "build", "-o", binary, "./cmd/relay")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

// relay validate accepts the configuration of each profile, with the files that the pod has.
func TestConfigurationIsValid(t *testing.T) {
	binary := build(t)
	for _, name := range profiles {
		t.Run(name, func(t *testing.T) {
			p := newPod(t, split(t, render(t, "--values", profile(name))))
			p.args[0] = "validate" // instead of serve
			cmd := exec.Command(binary, p.args...)
			cmd.Env = p.env
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("relay validate: %v\n%s", err, out)
			}
			for line := range strings.Lines(string(out)) {
				if strings.Contains(line, "warning") && !strings.Contains(line, "in plaintext") { // as the profile intends
					t.Error(line)
				}
			}
		})
	}
}
