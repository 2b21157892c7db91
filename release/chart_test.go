package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/yaml"
	strict "sigs.k8s.io/yaml"
)

// objects are what the chart creates, by kind and name.
type objects map[string]any

// render renders the chart as Helm does and decodes each object. A field that Kubernetes does not
// have is an error.
func render(t *testing.T, values map[string]any) (objects, error) {
	t.Helper()
	c, err := loader.Load("../deploy/chart/millrace")
	if err != nil {
		t.Fatal(err)
	}
	all, err := chartutil.ToRenderValues(c, values, chartutil.ReleaseOptions{Name: "m", Namespace: "millrace"}, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	got := objects{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, ".yaml") {
			if err := decode(got, files[name]); err != nil {
				t.Errorf("%s: %v\n%s", name, err, files[name])
			}
		}
	}
	return got, nil
}

func decode(to objects, file string) error {
	r := yaml.NewYAMLReader(bufio.NewReader(strings.NewReader(file)))
	for {
		text, err := r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var head struct {
			APIVersion, Kind string
			Metadata         struct{ Name string }
		}
		if err := strict.Unmarshal(text, &head); err != nil {
			return err
		}
		if head.Kind == "" {
			continue // the comment before the first object
		}
		object, ok := map[string]any{
			"v1 Service": &corev1.Service{}, "apps/v1 Deployment": &appsv1.Deployment{},
			"apps/v1 StatefulSet": &appsv1.StatefulSet{}, "apps/v1 DaemonSet": &appsv1.DaemonSet{},
			"policy/v1 PodDisruptionBudget": &policyv1.PodDisruptionBudget{},
		}[head.APIVersion+" "+head.Kind]
		if !ok {
			return fmt.Errorf("unexpected %s %s", head.APIVersion, head.Kind)
		}
		if err := strict.UnmarshalStrict(text, object); err != nil {
			return fmt.Errorf("%s %s: %w", head.Kind, head.Metadata.Name, err)
		}
		to[head.Kind+" "+head.Metadata.Name] = object
	}
}

func pods(all objects) map[string]corev1.PodTemplateSpec {
	got := map[string]corev1.PodTemplateSpec{}
	for name, o := range all {
		switch o := o.(type) {
		case *appsv1.Deployment:
			got[name] = o.Spec.Template
		case *appsv1.StatefulSet:
			got[name] = o.Spec.Template
		case *appsv1.DaemonSet:
			got[name] = o.Spec.Template
		}
	}
	return got
}

func TestTheChartHasEveryRole(t *testing.T) {
	all, err := render(t, map[string]any{"existingSecret": "keys", "gateway": map[string]any{"tlsSecret": "tls", "extraArgs": []any{"--domain=example.com"}}})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"DaemonSet m-hostd", "Deployment m-gateway", "Deployment m-reaper", "Deployment m-scheduler", "PodDisruptionBudget m-gateway",
		"PodDisruptionBudget m-nats", "Service m-gateway", "Service m-nats", "StatefulSet m-nats"}
	if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, want) {
		t.Errorf("objects %v, want %v", got, want)
	}
	for name, p := range pods(all) {
		checkPod(t, name, p)
	}
	for name, o := range all {
		checkSelector(t, name, o, pods(all))
	}
	nats := all["StatefulSet m-nats"].(*appsv1.StatefulSet)
	if routes := nats.Spec.Template.Spec.Containers[0].Args; !slices.Contains(routes, "--routes=nats://m-nats-0.m-nats:6222,nats://m-nats-1.m-nats:6222,nats://m-nats-2.m-nats:6222") {
		t.Errorf("arguments of NATS: %q", routes)
	}
}

// checkPod compares a pod's references with what it has.
func checkPod(t *testing.T, name string, p corev1.PodTemplateSpec) {
	t.Helper()
	volumes := map[string]bool{"data": strings.HasPrefix(name, "StatefulSet")}
	for _, v := range p.Spec.Volumes {
		volumes[v.Name] = true
	}
	c := p.Spec.Containers[0]
	for _, m := range c.VolumeMounts {
		if !volumes[m.Name] {
			t.Errorf("%s mounts %q, which it does not have", name, m.Name)
		}
	}
	for _, e := range c.Env {
		if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil && e.ValueFrom.SecretKeyRef.Name != "keys" {
			t.Errorf("%s reads %s from the secret %q", name, e.Name, e.ValueFrom.SecretKeyRef.Name)
		}
	}
	for _, probe := range []*corev1.Probe{c.ReadinessProbe, c.LivenessProbe} {
		if probe != nil && probe.HTTPGet != nil && !hasPort(p, probe.HTTPGet.Port.StrVal) {
			t.Errorf("%s has no port %q for a probe", name, probe.HTTPGet.Port.StrVal)
		}
		if probe != nil && probe.HTTPGet != nil && probe.HTTPGet.Scheme != corev1.URISchemeHTTPS {
			t.Errorf("%s has TLS and a probe without", name)
		}
	}
}

func hasPort(p corev1.PodTemplateSpec, name string) bool {
	return slices.ContainsFunc(p.Spec.Containers[0].Ports, func(port corev1.ContainerPort) bool { return port.Name == name })
}

// hasTarget reports whether a pod has the port that a service sends to: by default one with the same
// number.
func hasTarget(p corev1.PodTemplateSpec, to corev1.ServicePort) bool {
	if to.TargetPort.StrVal != "" {
		return hasPort(p, to.TargetPort.StrVal)
	}
	number := cmp.Or(to.TargetPort.IntVal, to.Port)
	return slices.ContainsFunc(p.Spec.Containers[0].Ports, func(port corev1.ContainerPort) bool { return port.ContainerPort == number })
}

// checkSelector fails unless an object selects the pods of one role, and these have the ports of a
// service.
func checkSelector(t *testing.T, name string, object any, all map[string]corev1.PodTemplateSpec) {
	t.Helper()
	var selector map[string]string
	var ports []corev1.ServicePort
	switch o := object.(type) {
	case *corev1.Service:
		selector, ports = o.Spec.Selector, o.Spec.Ports
	case *policyv1.PodDisruptionBudget:
		selector = o.Spec.Selector.MatchLabels
	case *appsv1.Deployment:
		selector = o.Spec.Selector.MatchLabels
	case *appsv1.StatefulSet:
		selector = o.Spec.Selector.MatchLabels
	case *appsv1.DaemonSet:
		selector = o.Spec.Selector.MatchLabels
	}
	var selected []string
	for pod, p := range all {
		if labels.SelectorFromSet(selector).Matches(labels.Set(p.Labels)) {
			selected = append(selected, pod)
		}
	}
	if len(selected) != 1 {
		t.Errorf("%s selects %q by %v", name, selected, selector)
		return
	}
	for _, port := range ports {
		if !hasTarget(all[selected[0]], port) {
			t.Errorf("%s: %s does not have the port %+v", name, selected[0], port)
		}
	}
}

func TestTheChartWithOneServer(t *testing.T) {
	all, err := render(t, map[string]any{"existingSecret": "keys", "nats": map[string]any{"replicas": 1}})
	if err != nil {
		t.Fatal(err)
	}
	args := strings.Join(all["StatefulSet m-nats"].(*appsv1.StatefulSet).Spec.Template.Spec.Containers[0].Args, " ")
	if strings.Contains(args, "--routes") || strings.Contains(args, "--cluster") {
		t.Errorf("one server has routes: %s", args)
	}
}

func TestTheChartRefusesWrongValues(t *testing.T) {
	for _, values := range []map[string]any{
		{},
		{"existingSecret": "keys", "nats": map[string]any{"replicas": 2}},
		{"existingSecret": "keys", "gateway": map[string]any{"replicas": 0}},
		{"existingSecret": "keys", "hostd": map[string]any{"dataPath": "relative"}},
	} {
		if _, err := render(t, values); err == nil {
			t.Errorf("values %v were accepted", values)
		}
	}
}
