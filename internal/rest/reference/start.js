// The token stays for the tab, over reloads, and goes with it: no other tab and no disk has it.
const kept = 'scheduler-authorization';
const keepsAuthorization = () => ({ statePlugins: { auth: { wrapActions: {
  authorize: (act) => (given) => {
    const values = Object.entries(given).map(([name, { value }]) => [name, value]);
    sessionStorage.setItem(kept, JSON.stringify(values.filter(([, value]) => typeof value === 'string')));
    return act(given);
  },
  logout: (act) => (names) => {
    sessionStorage.removeItem(kept);
    return act(names);
  },
} } } });

// Draws the contract. validatorUrl is off because it would ask another host.
window.ui = SwaggerUIBundle({
  url: 'openapi.json',
  dom_id: '#reference',
  deepLinking: true,
  filter: true,
  docExpansion: 'list',
  defaultModelsExpandDepth: 0,
  displayRequestDuration: true,
  persistAuthorization: false, // it would be kept on disk
  plugins: [keepsAuthorization],
  onComplete: () => {
    for (const [name, value] of JSON.parse(sessionStorage.getItem(kept) ?? '[]')) {
      window.ui.preauthorizeApiKey(name, value);
    }
  },
  validatorUrl: null,
  presets: [SwaggerUIBundle.presets.apis],
  layout: 'BaseLayout',
});
