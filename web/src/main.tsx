import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { RouterProvider } from '@tanstack/react-router';
import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import { again, SchedulerError } from './api';
import { applyTheme } from './preferences';
import { makeRouter } from './router';
import { restoreSession } from './session';
import './style.css';

applyTheme();

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      // A refusal stays one when it is repeated; a network or a server that is away may come back.
      retry: (count, error) => count < 2 && !(error instanceof SchedulerError && error.status < 500),
      refetchInterval: again,
      // Without a network a question fails at once, and says so.
      networkMode: 'always',
      staleTime: 2_000,
      refetchOnWindowFocus: true,
    },
    // Nor is a verb kept for later, when nobody expects it any more.
    mutations: { networkMode: 'always' },
  },
});
const router = makeRouter(queries);

restoreSession().finally(() => {
  createRoot(document.getElementById('console')!).render(
    <StrictMode>
      <QueryClientProvider client={queries}>
        <RouterProvider router={router} />
      </QueryClientProvider>
    </StrictMode>,
  );
});
