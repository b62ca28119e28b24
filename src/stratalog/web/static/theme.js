// Before anything is painted: the scheme that was chosen here, if one was.
"use strict";
try {
  const chosen = localStorage.getItem("stratalog-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch { /* a browser that keeps nothing: the system's scheme counts */ }
document.documentElement.classList.add("js");
