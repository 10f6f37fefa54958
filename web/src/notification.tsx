// One notification: what it tells, and what became of its messages.

import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { getRouteApi, Link, useNavigate } from '@tanstack/react-router';
import { useState, type ReactNode } from 'react';
import { api, every, must, type Schemas } from './api';
import { deliveryStatuses } from './delivery-status';
import { NotificationForm, Shown, type Notification } from './notification-form';
import { State } from './notifications';
import { usePages } from './pages';
import { can } from './session';
import { Empty, Facts, Field, FormDialog, Json, Loading, More, Problem, Rows, Status, Time, Title } from './ui';

const route = getRouteApi('/notifications/$id');

export function NotificationScreen() {
  const { id } = route.useParams();
  const query = useQuery({ queryKey: ['notification', id], queryFn: ({ signal }) => must(api.GET('/api/v1/scheduler/notifications/{id}', { signal, params: { path: { id } } })), ...every(10) });
  const one = query.data;
  if (!one) return query.error ? <Problem error={query.error} again={() => void query.refetch()} /> : <Loading what="the notification" />;
  return (
    <>
      <p><Link to="/notifications">Notifications</Link></p>
      <Title of={one.name} actions={can('notifications:write') && <Actions one={one} />}>{one.name}</Title>
      {query.error && <Problem error={query.error} />}
      <Facts of={factsOf(one)} />
      <h2>Deliveries</h2>
      <Deliveries one={one} />
    </>
  );
}

function factsOf(one: Notification): [string, ReactNode][] {
  const facts: [string, ReactNode][] = [
    ['State', <State key="state" of={one} />],
    ['Tells', <>{one.kind}: <bdi>{one.kind === 'email' ? one.to.join(', ') : one.url}</bdi></>],
    ['Of', one.events.join(', ')],
    ['Jobs', one.tags.length || one.jobIds.length ? <>{one.tags.map((tag) => <span key={tag} className="tag"><bdi>{tag}</bdi></span>)}{one.jobIds.map((job) => <Link key={job} to="/jobs/$id" params={{ id: job }} search={{}}>{job} </Link>)}</> : 'all'],
    ['Created', <><Time at={one.createdAt} /> by <bdi>{one.createdBy}</bdi></>],
  ];
  if (one.groupMinutes > 0) facts.push(['At most one message in', `${one.groupMinutes} minutes`]);
  if (one.quietHours) facts.push(['Quiet', `${one.quietHours.from} to ${one.quietHours.to} ${one.quietHours.timezone}`]);
  if (one.previousSecretUntil) facts.push(['The secret before is used too until', <Time key="until" at={one.previousSecretUntil} />]);
  return facts;
}

type Asked = 'edit' | 'rotate' | 'remove' | { secret: string };

function Actions({ one }: { one: Notification }) {
  const [asked, setAsked] = useState<Asked | null>(null);
  const queries = useQueryClient();
  const navigate = useNavigate();
  const params = { path: { id: one.id } };
  const changed = (stored: Notification): void => {
    queries.setQueryData(['notification', one.id], stored);
    void queries.invalidateQueries({ queryKey: ['notifications'] });
  };
  const test = useMutation({
    mutationFn: () => must(api.POST('/api/v1/scheduler/notifications/{id}/test', { params })),
    onSuccess: () => queries.invalidateQueries({ queryKey: ['deliveries', one.id] }),
  });
  const toggle = useMutation({
    mutationFn: () => must(api.PUT('/api/v1/scheduler/notifications/{id}', { params: { ...params, header: { 'If-Match': `"${one.version}"` } }, body: { ...one, enabled: !one.enabled } })),
    onSuccess: changed,
  });
  const error = test.error ?? toggle.error;
  // A secret that was just made is shown before its question closes.
  const close = (): void => setAsked((now) => (now && typeof now === 'object' ? now : null));
  return (
    <>
      {error && <Problem error={error} />}
      {one.enabled && <button type="button" className="main" disabled={test.isPending} onClick={() => test.mutate()}>Send a test</button>}
      <button type="button" disabled={toggle.isPending} onClick={() => toggle.mutate()}>{one.enabled ? 'Turn off' : 'Turn on'}</button>
      <button type="button" onClick={() => setAsked('edit')}>Edit</button>
      {one.kind === 'webhook' && <button type="button" onClick={() => setAsked('rotate')}>New secret</button>}
      <button type="button" className="danger" onClick={() => setAsked('remove')}>Delete</button>
      {asked === 'edit' && <NotificationForm stored={one} onClose={close} onStored={changed} />}
      {asked === 'rotate' && (
        <FormDialog title={`A new secret for ${one.name}`} submit="Make a new secret" onClose={close}
          act={async (form) => {
            const made = await must(api.POST('/api/v1/scheduler/notifications/{id}/rotate-secret', { params, body: { graceSeconds: Number(form.get('grace')) } }));
            const { secret, ...stored } = made;
            changed(stored);
            setAsked({ secret: secret ?? '' });
          }}>
          <Field label="Seconds for which messages bear a signature of the old one too" required>{(field) => <input {...field} name="grace" type="number" min={0} defaultValue={86400} required />}</Field>
        </FormDialog>
      )}
      {asked === 'remove' && (
        <FormDialog title={`Delete the notification ${one.name}`} submit="Delete this notification" danger onClose={close}
          act={async () => {
            await must(api.DELETE('/api/v1/scheduler/notifications/{id}', { params: { ...params, header: { 'If-Match': `"${one.version}"` } } }) as Promise<{ response: Response }>);
            await queries.invalidateQueries({ queryKey: ['notifications'] });
            await navigate({ to: '/notifications' });
          }}>
          <p>What it has not sent yet is not sent any more.</p>
        </FormDialog>
      )}
      {asked && typeof asked === 'object' && <Shown secret={asked.secret} onClose={() => setAsked(null)} />}
    </>
  );
}

function Deliveries({ one }: { one: Notification }) {
  const { status } = route.useSearch();
  const navigate = route.useNavigate();
  const { query, items } = usePages(['deliveries', one.id, status], (page, signal) =>
    must(api.GET('/api/v1/scheduler/notifications/{id}/deliveries', { signal, params: { path: { id: one.id }, query: { ...page, ...(status && { status }) } } })),
  (shown) => (shown.some((delivery) => delivery.status === 'pending') ? 2 : 10));
  return (
    <>
      <search className="bar">
        <label>Status
          <select value={status ?? ''} onChange={(event) => void navigate({ search: { status: deliveryStatuses.find((each) => each === event.target.value) }, replace: true })}>
            <option value="">Any</option>
            {deliveryStatuses.map((each) => <option key={each}>{each}</option>)}
          </select>
        </label>
      </search>
      {query.error && <Problem error={query.error} again={() => void query.refetch()} />}
      {query.isPending && <Loading what="deliveries" />}
      {query.data && items.length === 0 && <Empty title={status ? 'No delivery has this status.' : 'Nothing has been told yet.'}>{!status && one.enabled && <p>“Send a test” tells whether messages arrive.</p>}</Empty>}
      {items.length > 0 && (
        <Rows label="Deliveries" head={['Status', 'Made', 'Events', 'Attempts', 'Answer', '.Actions']}>
          {items.map((delivery) => <Delivery key={delivery.id} delivery={delivery} one={one} />)}
        </Rows>
      )}
      <More query={query} what="Older deliveries" />
    </>
  );
}

function Delivery({ delivery, one }: { delivery: Schemas['NotificationDelivery']; one: Notification }) {
  const queries = useQueryClient();
  const resend = useMutation({
    mutationFn: () => must(api.POST('/api/v1/scheduler/notifications/{id}/deliveries/{deliveryId}/resend', { params: { path: { id: one.id, deliveryId: delivery.id } } })),
    onSuccess: () => queries.invalidateQueries({ queryKey: ['deliveries', one.id] }),
  });
  const [first] = delivery.events;
  return (
    <tr>
      <td><Status of={delivery.status} /></td>
      <td><Time at={delivery.createdAt} /></td>
      <td>
        <details>
          <summary>{first?.type ?? 'no event'}{(first?.jobName ?? first?.monitorName) && <>: <bdi>{first?.jobName ?? first?.monitorName}</bdi></>}{delivery.eventCount > 1 && ` and ${delivery.eventCount - 1} more`}</summary>
          {first?.monitorId && <p><Link to="/monitors/$id" params={{ id: first.monitorId }}>See the monitor</Link></p>}
          {first?.executionId && <p><Link to="/executions/$id" params={{ id: first.executionId }}>See the execution</Link></p>}
          <Json label="Events as JSON" value={delivery.events} />
        </details>
      </td>
      <td>{delivery.attempts}{delivery.nextAttemptAt && <div className="faint">next <Time at={delivery.nextAttemptAt} short /></div>}</td>
      <td>{delivery.responseStatus !== null && <>HTTP {delivery.responseStatus} </>}{delivery.error && <span className="bad"><bdi>{delivery.error}</bdi></span>}{delivery.responseExcerpt && <div className="faint"><bdi>{delivery.responseExcerpt}</bdi></div>}</td>
      <td>{can('notifications:write') && one.enabled && <button type="button" disabled={resend.isPending} onClick={() => resend.mutate()}>Send again<span className="unseen"> what was made {delivery.createdAt}</span></button>}{resend.error && <Problem error={resend.error} />}</td>
    </tr>
  );
}
