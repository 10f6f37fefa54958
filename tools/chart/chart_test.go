package chart_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

var (
	deploy = filepath.Join("..", "..", "deploy")
	docs   = filepath.Join("..", "..", "docs")
)

func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(filepath.Join(deploy, "helm", "scheduler"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// render renders the chart with some values of YAML.
func render(t *testing.T, values string) (map[string]string, error) {
	t.Helper()
	c := load(t)
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	release := chartutil.ReleaseOptions{Name: "prod", Namespace: "jobs", Revision: 3, IsInstall: true}
	all, err := chartutil.ToRenderValues(c, given, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, all)
}

// rendered are the objects of a rendering.
type rendered struct {
	deployments []appsv1.Deployment
	jobs        []batchv1.Job
	services    []corev1.Service
	budgets     []policyv1.PodDisruptionBudget
	policies    []networkingv1.NetworkPolicy
	ingresses   []networkingv1.Ingress
	others      map[string][]map[string]any // by kind
}

func decode(t *testing.T, values string) rendered {
	t.Helper()
	files, err := render(t, values)
	if err != nil {
		t.Fatal(err)
	}
	r := rendered{others: map[string][]map[string]any{}}
	for name, text := range files {
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		for _, document := range regexp.MustCompile(`(?m)^---$`).Split(text, -1) {
			if strings.TrimSpace(regexp.MustCompile(`(?m)^\s*#.*$`).ReplaceAllString(document, "")) != "" {
				r.add(t, name, document)
			}
		}
	}
	return r
}

// add decodes an object. A field that its type does not have is an error.
func (r *rendered) add(t *testing.T, name, document string) {
	t.Helper()
	var meta struct{ Kind string }
	if err := yaml.Unmarshal([]byte(document), &meta); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, document)
	}
	strictly := func(into any) {
		t.Helper()
		if err := yaml.UnmarshalStrict([]byte(document), into); err != nil {
			t.Errorf("%s: %v\n%s", name, err, document)
		}
	}
	switch meta.Kind {
	case "Deployment":
		strictly(next(&r.deployments))
	case "Job":
		strictly(next(&r.jobs))
	case "Service":
		strictly(next(&r.services))
	case "PodDisruptionBudget":
		strictly(next(&r.budgets))
	case "NetworkPolicy":
		strictly(next(&r.policies))
	case "Ingress":
		strictly(next(&r.ingresses))
	case "ServiceAccount":
		strictly(&corev1.ServiceAccount{})
	case "ScaledObject", "PodMonitor", "PrometheusRule": // their types are not those of Kubernetes
		var object map[string]any
		strictly(&object)
		r.others[meta.Kind] = append(r.others[meta.Kind], object)
	default:
		t.Errorf("%s: the kind %q is not known here", name, meta.Kind)
	}
}

func next[T any](all *[]T) *T {
	var one T
	*all = append(*all, one)
	return &(*all)[len(*all)-1]
}

const everything = `
config: {EGRESS_ALLOW: 10.0.0.0/8, LOG_LEVEL: debug}
api: {internalPort: 3010, config: {CORS_ORIGINS: "https://console.example.com"}, ingress: {enabled: true, host: jobs.example.com, tlsSecret: tls, className: nginx}, nodeSelector: {disk: ssd}}
promoter: {replicas: 3, tolerations: [{key: a, operator: Exists}]}
workers:
- {name: calls, types: [http], slots: 1000, autoscaling: {enabled: true, min: 2, max: 40, prometheus: "http://prometheus:9090"}, resources: {limits: {memory: 1Gi}}}
- {name: code, types: [function, javascript], slots: 50, replicas: 2}
serviceMonitor: {enabled: true, labels: {release: prometheus}}
alerts: {enabled: true}
networkPolicy: {enabled: true, metricsFrom: {kubernetes.io/metadata.name: monitoring}}
image: {registry: registry.example.com/team, tag: v1.2.3, pullSecrets: [{name: pull}]}
`

func TestChartIsWhatKubernetesTakes(t *testing.T) {
	t.Parallel()
	for name, values := range map[string]string{"defaults": "", "everything": everything} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := decode(t, values)
			if len(r.deployments) < 3 || len(r.jobs) != 1 || len(r.services) < 1 || len(r.policies) != 2 {
				t.Fatalf("rendered %d deployments, %d jobs, %d services, %d policies", len(r.deployments), len(r.jobs), len(r.services), len(r.policies))
			}
			for _, d := range r.deployments {
				holds(t, d)
			}
			for _, b := range r.budgets {
				selects(t, b.Name, b.Spec.Selector.MatchLabels, r.deployments, 1)
			}
			for _, s := range r.services {
				selects(t, s.Name, s.Spec.Selector, r.deployments, 1)
			}
		})
	}
}

// selects wants a selector to fit so many deployments.
func selects(t *testing.T, name string, selector map[string]string, all []appsv1.Deployment, want int) {
	t.Helper()
	n := 0
	for _, d := range all {
		if labels.SelectorFromSet(selector).Matches(labels.Set(d.Spec.Template.Labels)) {
			n++
		}
	}
	if n != want {
		t.Errorf("%s selects %d deployments, want %d", name, n, want)
	}
}

// holds wants of a deployment what each has to have.
func holds(t *testing.T, d appsv1.Deployment) {
	t.Helper()
	pod := d.Spec.Template.Spec
	c := pod.Containers[0]
	if !labels.SelectorFromSet(d.Spec.Selector.MatchLabels).Matches(labels.Set(d.Spec.Template.Labels)) {
		t.Errorf("%s does not select its own pods", d.Name)
	}
	if pod.SecurityContext.RunAsNonRoot == nil || !*pod.SecurityContext.RunAsNonRoot || !*c.SecurityContext.ReadOnlyRootFilesystem || c.SecurityContext.Capabilities.Drop[0] != "ALL" {
		t.Errorf("%s may more than it needs", d.Name)
	}
	if c.LivenessProbe == nil || c.ReadinessProbe == nil || c.StartupProbe == nil || *pod.TerminationGracePeriodSeconds < 36 {
		t.Errorf("%s: no probes, or too little time to stop", d.Name)
	}
	ports := map[string]bool{}
	for _, p := range c.Ports {
		ports[p.Name] = true
	}
	if !ports["metrics"] || !ports[c.ReadinessProbe.HTTPGet.Port.StrVal] {
		t.Errorf("%s: ports %v, probed at %s", d.Name, ports, c.ReadinessProbe.HTTPGet.Port.StrVal)
	}
	known := variables(t)
	for _, e := range c.Env {
		if e.Name != "GOMEMLIMIT" && !slices.Contains(known, e.Name) {
			t.Errorf("%s sets %s, which no process reads", d.Name, e.Name)
		}
	}
	if len(c.EnvFrom) != 1 || c.EnvFrom[0].SecretRef.Name != "scheduler" {
		t.Errorf("%s takes its secrets from %v", d.Name, c.EnvFrom)
	}
}

// variables are those of the configuration's page.
func variables(t *testing.T) (all []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(docs, "reference", "configuration.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Z0-9_]+)` \\|").FindAllStringSubmatch(string(text), -1) {
		all = append(all, m[1])
	}
	return all
}

func TestWorkersFollowWhatIsWanted(t *testing.T) {
	t.Parallel()
	r := decode(t, everything)
	if len(r.others["ScaledObject"]) != 1 {
		t.Fatalf("%d scalers", len(r.others["ScaledObject"]))
	}
	text, err := yaml.Marshal(r.others["ScaledObject"][0])
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`scheduler_wanted_slots{job_type=~"http"}`, `threshold: "1000"`, "minReplicaCount: 2", "name: prod-scheduler-worker-calls"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the scaler has no %s:\n%s", want, text)
		}
	}
	for _, d := range r.deployments {
		if scaled := strings.HasSuffix(d.Name, "-calls"); (d.Spec.Replicas == nil) != scaled {
			t.Errorf("%s has its own number of replicas: %v", d.Name, d.Spec.Replicas)
		}
	}
}

// The notes give the commands for a tenant and a token, as the configuration of the API has it.
func TestNotesMakeATenantAndAToken(t *testing.T) {
	t.Parallel()
	files, err := render(t, "config: {JWT_ISSUER: auth}\napi: {config: {JWT_AUDIENCE: jobs}}")
	if err != nil {
		t.Fatal(err)
	}
	var args [][]string
	for _, m := range regexp.MustCompile(`--overrides='(.*)'`).FindAllStringSubmatch(files["scheduler/templates/NOTES.txt"], -1) {
		var pod corev1.Pod
		if err := yaml.UnmarshalStrict([]byte(m[1]), &pod); err != nil || len(pod.Spec.Containers) != 1 {
			t.Fatalf("%v in %s", err, m[1])
		}
		c := pod.Spec.Containers[0]
		if c.Image != "scheduler-migrate:devel" || len(c.EnvFrom) != 1 || c.EnvFrom[0].SecretRef.Name != "scheduler" {
			t.Errorf("image %s, secrets %v", c.Image, c.EnvFrom)
		}
		if set := []corev1.EnvVar{{Name: "JWT_AUDIENCE", Value: "jobs"}, {Name: "JWT_ISSUER", Value: "auth"}}; len(c.Env) < 2 || !slices.Equal(c.Env[:2], set) {
			t.Errorf("the variables are %v", c.Env)
		}
		args = append(args, c.Args)
	}
	if len(args) != 2 || !slices.Equal(args[0], []string{"create-tenant", "Example Ltd"}) || !slices.Equal(args[1], []string{"mint-token", "admin", "TENANT_ID", "8"}) {
		t.Errorf("the tasks are %q", args)
	}
}

// The alerts of the chart are those of deploy/prometheus.
func TestAlertsAreTheSame(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(deploy, "prometheus", "alerts.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]any
	if err := yaml.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	got := decode(t, everything).others["PrometheusRule"]
	if len(got) != 1 || len(want["groups"].([]any)) == 0 {
		t.Fatalf("%d rules", len(got))
	}
	a, _ := yaml.Marshal(got[0]["spec"]) // it was YAML a moment ago
	b, _ := yaml.Marshal(want)
	if string(a) != string(b) {
		t.Errorf("the chart's alerts are\n%s", a)
	}
}

func TestWrongValuesAreRefused(t *testing.T) {
	t.Parallel()
	for name, values := range map[string]string{
		"a name that is misspelt": "promotor: {replicas: 2}", "no workers": "workers: []", "a class without slots": "workers: [{name: a}]",
		"slots beyond the bound": "workers: [{name: a, slots: 20000}]", "a class that is no name": "workers: [{name: A_b, slots: 1}]",
		"a variable in small letters": "config: {log_level: debug}", "an ingress without a host": "api: {ingress: {enabled: true}}",
		"a grace that is too short": "terminationGracePeriodSeconds: 5",
	} {
		if _, err := render(t, values); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
