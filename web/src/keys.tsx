// API keys, for programs.

import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { api, must, type Schemas } from './api';
import { usePages } from './pages';
import { can, useSession } from './session';
import { Dialog, Empty, Field, FormDialog, Loading, More, Problem, Rows, Time, Title } from './ui';

type Key = Schemas['ApiKey'];
type Asked = { make: true } | { rotate: Key } | { remove: Key } | { made: string };

export function Keys() {
  const [asked, setAsked] = useState<Asked | null>(null);
  const queries = useQueryClient();
  const { query, items } = usePages(['keys'], (page, signal) => must(api.GET('/api/v1/scheduler/api-keys', { signal, params: { query: page } })));
  // A key that was just made is shown before its question closes.
  const close = (): void => {
    setAsked((now) => (now && 'made' in now ? now : null));
    void queries.invalidateQueries({ queryKey: ['keys'] });
  };
  return (
    <>
      <Title of="API keys" actions={can('keys:write') && <button type="button" className="main" onClick={() => setAsked({ make: true })}>New API key</button>}>API keys</Title>
      {query.error && <Problem error={query.error} again={() => void query.refetch()} />}
      {query.isPending && <Loading what="API keys" />}
      {query.data && items.length === 0 && <Empty title="There are no API keys yet."><p>A program calls the API with one; people use tokens.</p></Empty>}
      {items.length > 0 && (
        <Rows label="API keys" head={['Name', 'Begins with', 'May', 'Last used', 'Expires', '.Actions']}>
          {items.map((key) => (
            <tr key={key.id}>
              <td><bdi>{key.name}</bdi></td>
              <td><code>{key.prefix}</code></td>
              <td>{key.scopes.map((scope) => <code key={scope}>{scope} </code>)}</td>
              <td><Time at={key.lastUsedAt} /></td>
              <td>{key.expiresAt ? <Time at={key.expiresAt} /> : 'never'}</td>
              <td>{can('keys:write') && <div className="actions"><button type="button" onClick={() => setAsked({ rotate: key })}>Rotate<span className="unseen"> {key.name}</span></button><button type="button" className="danger" onClick={() => setAsked({ remove: key })}>Delete<span className="unseen"> {key.name}</span></button></div>}</td>
            </tr>
          ))}
        </Rows>
      )}
      <More query={query} what="More API keys" />
      {asked && 'make' in asked && <Make onClose={close} onMade={(key) => setAsked({ made: key })} />}
      {asked && 'rotate' in asked && (
        <FormDialog title={`Rotate ${asked.rotate.name}`} submit="Make a new key" onClose={close}
          act={async (form) => {
            const made = await must(api.POST('/api/v1/scheduler/api-keys/{id}/rotate', { params: { path: { id: asked.rotate.id } }, body: { graceSeconds: Number(form.get('grace')) } }));
            setAsked({ made: made.key });
          }}>
          <Field label="Seconds for which the old key goes on" required>{(field) => <input {...field} name="grace" type="number" min={0} defaultValue={3600} required />}</Field>
        </FormDialog>
      )}
      {asked && 'remove' in asked && (
        <FormDialog title={`Delete the API key ${asked.remove.name}`} submit="Delete this API key" danger onClose={close}
          act={() => must(api.DELETE('/api/v1/scheduler/api-keys/{id}', { params: { path: { id: asked.remove.id } } }) as Promise<{ response: Response }>)}>
          <p>Programs that use it are refused at once.</p>
        </FormDialog>
      )}
      {asked && 'made' in asked && (
        <Dialog title="The new key" onClose={() => setAsked(null)}>
          <p>It is shown this once. Keep it where your program finds it.</p>
          <pre tabIndex={0} role="region" aria-label="The key">{asked.made}</pre>
          <div className="actions">
            <button type="button" className="main" onClick={() => void navigator.clipboard?.writeText(asked.made)}>Copy</button>
            <button type="button" onClick={() => setAsked(null)}>Close</button>
          </div>
        </Dialog>
      )}
    </>
  );
}

function Make({ onClose, onMade }: { onClose: () => void; onMade: (key: string) => void }) {
  const { session } = useSession();
  const scopes = (session?.permissions ?? []).filter((one) => one !== 'keys:write' && !one.startsWith('tenants:'));
  const make = async (form: FormData): Promise<void> => {
    const expires = String(form.get('expires'));
    const made = await must(api.POST('/api/v1/scheduler/api-keys', {
      body: { name: String(form.get('name')), scopes: form.getAll('scope').map(String), ...(expires && { expiresAt: new Date(expires).toISOString() }) } as Schemas['ApiKeySpec'],
    }));
    onMade(made.key);
  };
  return (
    <FormDialog title="New API key" submit="Make the key" act={make} onClose={onClose}>
      <Field label="Name" required hint="What the key is for.">{(field) => <input {...field} name="name" required maxLength={200} autoComplete="off" />}</Field>
      <fieldset>
        <legend>It may</legend>
        {scopes.map((scope) => <label key={scope} className="beside"><input type="checkbox" name="scope" value={scope} /> {scope}</label>)}
      </fieldset>
      <Field label="Expires (my time)" hint="Empty: never.">{(field) => <input {...field} name="expires" type="datetime-local" />}</Field>
    </FormDialog>
  );
}
