// The command palette: every screen, the frequent actions, and any job by a part of its
// name, from the keyboard.

import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { useEffect, useId, useState, type KeyboardEvent } from 'react';
import { api, must } from './api';
import { prefer } from './preferences';
import { useViews } from './saved-views';
import { screens } from './screens';
import { can, signOut } from './session';
import { Dialog } from './ui';

interface Command {
  name: string;
  kind: string;
  act: () => void;
}

const anId = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** A text some moments after it last changed. */
function useSettled(text: string): string {
  const [settled, setSettled] = useState(text);
  useEffect(() => {
    const wait = setTimeout(() => setSettled(text), 150);
    return () => clearTimeout(wait);
  }, [text]);
  return settled;
}

export function Palette({ onClose }: { onClose: () => void }) {
  const [typed, setTyped] = useState('');
  const [chosen, setChosen] = useState(0);
  const id = useId();
  const commands = useCommands(typed.trim());
  const at = Math.min(chosen, commands.length - 1);
  const run = (command: Command | undefined): void => {
    if (!command) return;
    onClose();
    command.act();
  };
  const move = (event: KeyboardEvent): void => {
    if (event.key === 'Enter') {
      event.preventDefault();
      run(commands[at]);
    }
    const step = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0;
    if (step === 0 || commands.length === 0) return;
    event.preventDefault();
    const next = (at + step + commands.length) % commands.length;
    setChosen(next);
    document.getElementById(`${id}-${next}`)?.scrollIntoView({ block: 'nearest' });
  };
  return (
    <Dialog title="Go to a screen or a job, or do something" onClose={onClose}>
      <input type="text" className="palette" role="combobox" aria-label="What to do" aria-expanded={commands.length > 0} aria-autocomplete="list" aria-controls={`${id}-list`} autoFocus autoComplete="off" spellCheck={false}
        {...(at >= 0 && { 'aria-activedescendant': `${id}-${at}` })}
        value={typed} maxLength={100} placeholder="A screen, an action, a job’s name or an id" onKeyDown={move}
        onChange={(event) => { setTyped(event.target.value); setChosen(0); }} />
      <ul hidden={commands.length === 0} id={`${id}-list`} role="listbox" aria-label="What can be done" className="palette">
        {commands.map((command, index) => (
          <li key={`${command.kind} ${command.name} ${index}`} id={`${id}-${index}`} role="option" aria-selected={index === at} onMouseMove={() => setChosen(index)} onClick={() => run(command)}>
            <bdi>{command.name}</bdi> <span className="faint">{command.kind}</span>
          </li>
        ))}
      </ul>
      {commands.length === 0 && <p role="status" className="faint">Nothing has this name.</p>}
    </Dialog>
  );
}

function useCommands(typed: string): Command[] {
  const navigate = useNavigate();
  const queries = useQueryClient();
  const settled = useSettled(typed);
  const views = useViews();
  const jobs = useQuery({
    queryKey: ['palette', settled],
    enabled: settled.length > 1 && !anId.test(settled) && can('jobs:read'),
    queryFn: ({ signal }) => must(api.GET('/api/v1/scheduler/jobs', { signal, params: { query: { q: settled, limit: 8 } } })),
    placeholderData: (before) => before,
  });
  const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (command: Command): boolean => words.every((word) => `${command.name} ${command.kind}`.toLowerCase().includes(word));
  const go = (to: string) => () => void navigate({ to, search: {} } as Parameters<typeof navigate>[0]);
  const actions: Command[] = [
    ...screens.filter((screen) => can(screen.needs)).map((screen) => ({ name: screen.name, kind: 'screen', act: go(screen.to) })),
    ...views.filter((view) => screens.some((screen) => screen.to === view.screen && can(screen.needs))).map((view) => ({ name: view.name, kind: 'saved view', act: () => void navigate({ to: view.screen, search: view.search } as unknown as Parameters<typeof navigate>[0]) })),
    ...(can('jobs:write') ? [{ name: 'New job', kind: 'action', act: go('/jobs/new') }] : []),
    ...(can('executions:read') ? (['failed', 'running', 'pending'] as const).map((status) => ({ name: `Executions that are ${status}`, kind: 'filter', act: () => void navigate({ to: '/executions', search: { status } }) })) : []),
    ...(can('jobs:read') ? (['paused', 'inactive'] as const).map((status) => ({ name: `Jobs that are ${status}`, kind: 'filter', act: () => void navigate({ to: '/jobs', search: { status } }) })) : []),
    ...(can('monitors:read') ? (['down', 'late'] as const).map((status) => ({ name: `Monitors that are ${status}`, kind: 'filter', act: () => void navigate({ to: '/monitors', search: { status } }) })) : []),
    ...(['light', 'dark', 'system'] as const).map((theme) => ({ name: `Theme: ${theme}`, kind: 'view', act: () => prefer({ theme }) })),
    ...(['mine', 'job', 'utc'] as const).map((clock) => ({ name: `Times: ${clock === 'utc' ? 'UTC' : clock === 'job' ? 'the job’s zone' : 'my zone'}`, kind: 'view', act: () => prefer({ clock }) })),
    { name: 'Sign out', kind: 'action', act: () => { queries.clear(); void signOut(); } },
  ];
  if (anId.test(typed)) {
    return [
      { name: `The execution ${typed}`, kind: 'id', act: () => void navigate({ to: '/executions/$id', params: { id: typed } }) },
      { name: `The job ${typed}`, kind: 'id', act: () => void navigate({ to: '/jobs/$id', params: { id: typed }, search: {} }) },
    ];
  }
  const found = (typed.length > 1 ? (jobs.data?.items ?? []) : []).map((job) => ({ name: job.name, kind: 'job', act: () => void navigate({ to: '/jobs/$id', params: { id: job.id }, search: {} }) }));
  const asked = settled === typed && !jobs.isPlaceholderData; // else they answer what was typed before
  return [
    ...actions.filter(fits),
    ...(asked ? found : found.filter(fits)),
    ...(typed && can('jobs:read') ? [{ name: `Search the jobs for “${typed}”`, kind: 'search', act: () => void navigate({ to: '/jobs', search: { q: typed } }) }] : []),
  ];
}
