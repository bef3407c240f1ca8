// The chosen theme, set before the first paint so that nothing flashes.
(() => {
  let theme = 'system';
  try { theme = localStorage.getItem('matchlight-theme') || 'system'; } catch { /* a page without storage */ }
  if (theme !== 'system') document.documentElement.dataset.theme = theme;
})();
