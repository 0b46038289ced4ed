// Runs before the page is drawn, so that the theme does not flash.
'use strict';
try {
  const theme = localStorage.getItem('relay.theme');
  if (theme === 'dark' || theme === 'light') document.documentElement.dataset.theme = theme;
} catch { /* without storage the system selects the theme */ }
