// Notifications: who is told what of jobs, and whether it arrives.

import { useQueryClient } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { NotificationForm, Shown, type Notification } from './notification-form';
import { api, must } from './api';
import { usePages } from './pages';
import { can } from './session';
import { Empty, Loading, More, Problem, Rows, Status, Time, Title } from './ui';

export function Notifications() {
  const [making, setMaking] = useState(false);
  const [secret, setSecret] = useState<string | null>(null);
  const queries = useQueryClient();
  const { query, items } = usePages(['notifications'], (page, signal) => must(api.GET('/api/v1/scheduler/notifications', { signal, params: { query: page } })), () => 30);
  return (
    <>
      <Title of="Notifications" actions={can('notifications:write') && <button type="button" className="main" onClick={() => setMaking(true)}>New notification</button>}>Notifications</Title>
      {query.error && <Problem error={query.error} again={() => void query.refetch()} />}
      {query.isPending && <Loading what="notifications" />}
      {query.data && items.length === 0 && <Empty title="There are no notifications yet."><p>A notification tells a webhook, a chat or people by e-mail when a job fails, and when it recovers.</p></Empty>}
      {items.length > 0 && (
        <Rows label="Notifications" head={['Name', 'Tells', 'Of', 'State', 'Changed']}>
          {items.map((one) => (
            <tr key={one.id}>
              <td><Link to="/notifications/$id" params={{ id: one.id }} search={{}}><bdi>{one.name}</bdi></Link></td>
              <td>{one.kind}: <bdi>{one.kind === 'email' ? one.to.join(', ') : one.url}</bdi></td>
              <td>{one.events.join(', ')}</td>
              <td><State of={one} /></td>
              <td><Time at={one.updatedAt} /></td>
            </tr>
          ))}
        </Rows>
      )}
      <More query={query} what="More notifications" />
      {making && (
        <NotificationForm stored={null} onClose={() => setMaking(false)}
          onStored={(stored) => {
            setSecret('secret' in stored ? stored.secret : null);
            void queries.invalidateQueries({ queryKey: ['notifications'] });
          }} />
      )}
      {secret !== null && !making && <Shown secret={secret} onClose={() => setSecret(null)} />}
    </>
  );
}

/** Whether it tells anything now, and whether that arrives. */
export function State({ of: { enabled, disabledReason, failingSince, droppedEvents } }: { of: Notification }) {
  return (
    <>
      {enabled ? <Status of={failingSince ? 'failed' : 'active'} /> : <Status of="paused" />}
      {!enabled && <> off{disabledReason && <>: {disabledReason}</>}</>}
      {failingSince && <div className="bad">Nothing arrives since <Time at={failingSince} short /></div>}
      {droppedEvents > 0 && <div className="warn">{droppedEvents.toLocaleString('en')} events were not told: too many messages waited</div>}
    </>
  );
}
