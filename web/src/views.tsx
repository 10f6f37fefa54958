// Saved views of a screen: choose one, keep what is shown, forget one.

import { useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { filtersOf, forgetView, keepView, maxName, useViews, type Screen } from './saved-views';
import { Field, FormDialog } from './ui';

export function Views({ screen, search }: { screen: Screen; search: object }) {
  const views = useViews().filter((view) => view.screen === screen);
  const navigate = useNavigate();
  const [naming, setNaming] = useState(false);
  const shown = filtersOf(search);
  const same = (other: Record<string, string>): boolean => {
    const names = new Set([...Object.keys(shown), ...Object.keys(other)]);
    return [...names].every((name) => shown[name] === other[name]);
  };
  const chosen = views.findIndex((view) => same(view.search));
  const current = views[chosen];
  const filtered = Object.keys(shown).length > 0;
  if (views.length === 0 && !filtered) return null;
  return (
    <div className="bar">
      {views.length > 0 && (
        <label>Saved view
          <select value={chosen} onChange={(event) => void navigate({ to: screen, search: views[Number(event.target.value)]?.search ?? {} } as unknown as Parameters<typeof navigate>[0])}>
            <option value={-1}>{filtered ? 'Not saved' : 'None'}</option>
            {views.map((view, index) => <option key={view.name} value={index}>{view.name}</option>)}
          </select>
        </label>
      )}
      {current
        ? <button type="button" onClick={() => forgetView(current)}>Forget this view</button>
        : filtered && <button type="button" onClick={() => setNaming(true)}>Save this view</button>}
      {naming && (
        <FormDialog title="Save this view" submit="Save the view" onClose={() => setNaming(false)}
          act={async (form) => keepView({ name: String(form.get('name')).trim(), screen, search: shown })}>
          <Field label="Name" required hint="The filters are kept in this browser under this name. A view of the same name is replaced.">
            {(field) => <input {...field} name="name" required maxLength={maxName} pattern=".*\S.*" autoComplete="off" autoFocus />}
          </Field>
        </FormDialog>
      )}
    </div>
  );
}
