package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"

	"github.com/scheduler-service/scheduler/internal/config"
	"github.com/scheduler-service/scheduler/internal/egress"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/loop"
	"github.com/scheduler-service/scheduler/internal/monitor/watch"
	"github.com/scheduler-service/scheduler/internal/notification/derive"
	"github.com/scheduler-service/scheduler/internal/notification/send"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/tenant/hosts"
)

// notifications makes the passes that find out what tenants want to be told, and tell it;
// messages may reach the endpoints beside what the configuration allows.
func (p process) notifications(ctx context.Context, c config.Promoter, db *postgres.DB, endpoints []netip.AddrPort) ([]loop.Pass, func(), error) {
	ring, err := newRing(c.SecretsKeys)
	if err != nil {
		return nil, nil, err
	}
	var mailer *send.Mailer
	if !c.SMTPURL.IsZero() {
		if mailer, err = send.NewMailer(c.SMTPURL.Reveal(), c.SMTPFrom); err != nil {
			return nil, nil, fmt.Errorf("SMTP_URL: %w", err)
		}
	}
	lists, err := hosts.Load(ctx, db)
	if err != nil {
		return nil, nil, err
	}
	client, err := egress.New(egress.Config{Allow: c.EgressAllow, Endpoints: endpoints, Admit: lists.Admit, Proxy: proxyOf(c.EgressProxy)})
	if err != nil {
		return nil, nil, fmt.Errorf("make the client for notifications: %w", err)
	}
	sender := send.New(send.Config{DB: db, Client: client, Fresh: lists.Fresh, Keys: ring, Mail: mailer, Metrics: p.metrics, Log: p.log})
	derives := derive.New(db, p.metrics, p.log)
	watches := watch.New(watch.Config{DB: db, Log: p.log, Tell: derives.TellMonitors})
	return slices.Concat(derives.Passes(), watches.Passes(), sender.Passes()), client.Close, nil
}

// checkTarget says whether a URL may be called, by the rules for jobs of type http.
func checkTarget(validate func(jobType string, config json.RawMessage) []fault.Field) func(*url.URL) error {
	return func(target *url.URL) error {
		config, err := json.Marshal(map[string]string{"url": target.String()})
		if err != nil {
			return fmt.Errorf("write a URL: %w", err)
		}
		if fields := validate("http", config); len(fields) > 0 {
			return errors.New(fields[0].Message)
		}
		return nil
	}
}
