// Before anything is painted: the theme that was chosen here, or else the one of the system.
(() => {
  const chosen = localStorage.getItem("herdsman.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
