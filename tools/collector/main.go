// Command collector is an OpenTelemetry collector of two parts, for tests: it takes OTLP over
// HTTP, and hands what it took to another address in the same way. So a test sees what a real
// collector accepts. `collector LISTEN FORWARD` ends when its standard input does.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/yamlprovider"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/otlphttpexporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"
)

// pipeline is the configuration, as an operator would write it.
const pipeline = `yaml:
receivers: {otlp: {protocols: {http: {endpoint: %q}}}}
exporters: {otlphttp: {endpoint: %q, compression: none}}
service:
  telemetry: {metrics: {level: none}, logs: {level: warn}}
  pipelines: {traces: {receivers: [otlp], exporters: [otlphttp]}}
`

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: collector LISTEN FORWARD")
	}
	c, err := otelcol.NewCollector(otelcol.CollectorSettings{
		BuildInfo: component.BuildInfo{Command: "collector", Version: "0"},
		Factories: factories,
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: confmap.ResolverSettings{
			URIs: []string{fmt.Sprintf(pipeline, os.Args[1], os.Args[2])}, ProviderFactories: []confmap.ProviderFactory{yamlprovider.NewFactory()},
		}},
	})
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		c.Shutdown()
	}()
	if err := c.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func factories() (f otelcol.Factories, err error) {
	f.Telemetry = otelconftelemetry.NewFactory()
	if f.Receivers, err = otelcol.MakeFactoryMap[receiver.Factory](otlpreceiver.NewFactory()); err != nil {
		return f, err
	}
	f.Exporters, err = otelcol.MakeFactoryMap[exporter.Factory](otlphttpexporter.NewFactory())
	return f, err
}
